//! Waits for a condition with a deadline; the failure message says what was expected and seen.
//!
//! ```no_run
//! # use postrider_testkit::eventually;
//! # async fn waiting() -> u32 { 0 }
//! # async fn test() {
//! eventually("the outbox is empty", async || match waiting().await {
//!     0 => Ok(()),
//!     n => Err(format!("{n} messages wait")),
//! })
//! .await;
//! # }
//! ```

use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Long enough for two busy cores; a passing test never waits this long.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// First and longest poll interval.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// Result of checking a condition: `bool`, `Option<T>`, or `Result<T, E>` whose error is the value
/// last seen.
pub trait Condition {
    /// Value of a condition that holds.
    type Output;

    /// The value, or what was seen instead.
    fn check(self) -> Result<Self::Output, String>;
}

impl Condition for bool {
    type Output = ();

    fn check(self) -> Result<(), String> {
        if self {
            Ok(())
        } else {
            Err("false".to_owned())
        }
    }
}

impl<T> Condition for Option<T> {
    type Output = T;

    fn check(self) -> Result<T, String> {
        self.ok_or_else(|| "None".to_owned())
    }
}

impl<T, E: Debug> Condition for Result<T, E> {
    type Output = T;

    fn check(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:?}"))
    }
}

/// Polls until the condition holds; fails the test after [`DEADLINE`].
#[track_caller]
pub fn eventually<C: Condition>(
    what: &str,
    condition: impl AsyncFnMut() -> C,
) -> impl Future<Output = C::Output> {
    within(DEADLINE, what, condition)
}

/// Polls until the condition holds; fails the test after this deadline.
#[track_caller]
pub fn within<C: Condition>(
    deadline: Duration,
    what: &str,
    condition: impl AsyncFnMut() -> C,
) -> impl Future<Output = C::Output> {
    wait(deadline, what, condition, Location::caller())
}

async fn wait<C: Condition>(
    deadline: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> C,
    caller: &Location<'_>,
) -> C::Output {
    let end = Instant::now() + deadline;
    let mut pause = POLL_INTERVALS.0;
    let mut seen = "nothing: the first check did not end".to_owned();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // A check that hangs must not outlive the deadline either.
        if let Ok(checked) = tokio::time::timeout(left, condition()).await {
            match checked.check() {
                Ok(value) => return value,
                Err(instead) => seen = instead,
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        assert!(
            !left.is_zero(),
            "not within {deadline:?}: {what} (last seen: {seen}; called at {caller})"
        );
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(POLL_INTERVALS.1);
    }
}
