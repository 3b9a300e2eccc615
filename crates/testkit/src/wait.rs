//! Waiting for a state, with a deadline and a message that says what did not come true.
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

/// Long enough for two busy cores; a test that works never waits so long.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The pause between two looks grows from the first to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// What a look at the state can give: `bool`, `Option<T>`, or `Result<T, E>` whose error is the
/// value last seen.
pub trait Look {
    /// What is gained when it has come true.
    type Gain;

    /// The gain, or what was seen instead.
    fn gain(self) -> Result<Self::Gain, String>;
}

impl Look for bool {
    type Gain = ();

    fn gain(self) -> Result<(), String> {
        if self {
            Ok(())
        } else {
            Err("false".to_owned())
        }
    }
}

impl<T> Look for Option<T> {
    type Gain = T;

    fn gain(self) -> Result<T, String> {
        self.ok_or_else(|| "None".to_owned())
    }
}

impl<T, E: Debug> Look for Result<T, E> {
    type Gain = T;

    fn gain(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:?}"))
    }
}

/// Looks again and again until it comes true; fails the test after [`DEADLINE`].
#[track_caller]
pub fn eventually<L: Look>(
    what: &str,
    look: impl AsyncFnMut() -> L,
) -> impl Future<Output = L::Gain> {
    within(DEADLINE, what, look)
}

/// The same with a deadline of one's own.
#[track_caller]
pub fn within<L: Look>(
    deadline: Duration,
    what: &str,
    look: impl AsyncFnMut() -> L,
) -> impl Future<Output = L::Gain> {
    wait(deadline, what, look, Location::caller())
}

async fn wait<L: Look>(
    deadline: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> L,
    asked_at: &Location<'_>,
) -> L::Gain {
    let end = Instant::now() + deadline;
    let mut pause = PAUSES.0;
    let mut seen = "nothing: the first look did not end".to_owned();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // A look that hangs must not outlive the deadline either.
        if let Ok(looked) = tokio::time::timeout(left, look()).await {
            match looked.gain() {
                Ok(gain) => return gain,
                Err(instead) => seen = instead,
            }
        }
        let left = end.saturating_duration_since(Instant::now());
        assert!(
            !left.is_zero(),
            "not within {deadline:?}: {what} (last seen: {seen}; asked at {asked_at})"
        );
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}
