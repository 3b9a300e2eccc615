//! From a verdict to an outcome: a pure function.

use crate::failure::{Category, Failure};
use crate::lease::{Outcome, UnreadablePayload};
use crate::retry::RetryPolicy;

use super::{BoxError, Verdict};

/// Decides the outcome for an item with `attempts` failed attempts. `jitter` is between 0 and 1.
///
/// A permanent failure makes the item dead at once; a transient one does when the policy has no attempt left.
#[must_use]
pub fn decide(policy: &RetryPolicy, verdict: Verdict, attempts: i32, jitter: f64) -> Outcome {
    match verdict {
        Verdict::Done => Outcome::Done,
        Verdict::Snooze(after) => Outcome::Snooze { after },
        Verdict::Dead(failure) => Outcome::Dead { failure },
        Verdict::Retry { failure, .. } if !failure.is_transient() => Outcome::Dead { failure },
        Verdict::Retry { failure, after } => {
            let made = u32::try_from(attempts).unwrap_or(0).saturating_add(1);
            match policy.delay(made, jitter) {
                Some(delay) => Outcome::Retry {
                    after: after.unwrap_or(delay),
                    failure,
                },
                None => Outcome::Dead { failure },
            }
        }
    }
}

/// Classifies an error that a handler returned with `?`: a failure stays what it is, an unreadable payload becomes a
/// dead letter, anything else is unexpected and may pass.
pub(super) fn unexpected(error: BoxError) -> Verdict {
    let error = match error.downcast::<Failure>() {
        Ok(failure) => return Verdict::retry(*failure),
        Err(error) => error,
    };
    if error.is::<UnreadablePayload>() {
        return Verdict::Dead(Failure::from_error("UNREADABLE_PAYLOAD", &*error));
    }
    Verdict::retry(Failure::from_error("UNEXPECTED", &*error))
}

/// A panic in a handler is a failed attempt.
pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> Verdict {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Verdict::retry(Failure::with_category(
        "HANDLER_PANIC",
        Category::System,
        text,
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;

    fn failure(category: Category) -> Failure {
        Failure::with_category("X", category, "x")
    }

    #[test]
    fn a_permanent_failure_is_dead_at_once() {
        let verdict = Verdict::retry(failure(Category::Data));
        let outcome = decide(&RetryPolicy::default(), verdict, 0, 0.5);
        assert!(matches!(outcome, Outcome::Dead { .. }));
    }

    #[test]
    fn attempts_never_exceed_the_policy() {
        let policy = RetryPolicy::fixed(Duration::from_secs(1), 3).unwrap();
        let outcome = |attempts| {
            decide(
                &policy,
                Verdict::retry(failure(Category::Network)),
                attempts,
                0.5,
            )
        };
        assert!(matches!(outcome(0), Outcome::Retry { .. }));
        assert!(matches!(outcome(1), Outcome::Retry { .. }));
        assert!(matches!(outcome(2), Outcome::Dead { .. }));
        assert!(matches!(outcome(i32::MAX), Outcome::Dead { .. }));
    }

    #[test]
    fn a_wait_that_was_asked_for_is_kept_but_buys_no_attempt() {
        let policy = RetryPolicy::fixed(Duration::from_secs(1), 2).unwrap();
        let verdict = || Verdict::Retry {
            failure: failure(Category::System),
            after: Some(Duration::from_secs(77)),
        };
        let outcome = decide(&policy, verdict(), 0, 0.5);
        assert!(
            matches!(outcome, Outcome::Retry { after, .. } if after == Duration::from_secs(77))
        );
        assert!(matches!(
            decide(&policy, verdict(), 1, 0.5),
            Outcome::Dead { .. }
        ));
    }

    #[test]
    fn what_a_handler_lets_through_is_told_apart() {
        let own = unexpected(Box::new(failure(Category::Auth)));
        assert_eq!(own, Verdict::retry(failure(Category::Auth)));
        let other = unexpected("boom".into());
        assert!(matches!(other, Verdict::Retry { failure, .. } if failure.code() == "UNEXPECTED"));
    }
}
