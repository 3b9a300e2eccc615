//! A handler's answer for an item.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use super::BoxError;
use super::batch_effect::Value;
use crate::failure::Failure;

/// A handler's verdict. Closed, so that every consequence is decided in one place.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The item is done.
    Done,
    /// The attempt failed. The retry policy decides whether and when to try again, unless the failure is permanent.
    Retry {
        /// What went wrong.
        failure: Failure,
        /// The delay that the other party asked for (`Retry-After`); overrides the policy's.
        after: Option<Duration>,
    },
    /// Not now: try again later, without spending an attempt.
    Snooze(Duration),
    /// The item failed permanently and becomes a dead letter.
    Dead(Failure),
}

impl Verdict {
    /// A failed attempt, left to the retry policy.
    #[must_use]
    pub const fn retry(failure: Failure) -> Self {
        Self::Retry {
            failure,
            after: None,
        }
    }
}

/// Writes that commit together with the settlement, or not at all.
pub type Effect =
    Box<dyn for<'t> FnOnce(&'t mut PgConnection) -> BoxFuture<'t, Result<(), BoxError>> + Send>;

/// A verdict, and what to write with it.
pub struct Handled {
    pub(super) verdict: Verdict,
    pub(super) effect: Option<Effect>,
    pub(super) value: Option<Value>,
}

impl Handled {
    /// Adds writes that share the settlement's transaction. They are rolled back if the lease is lost.
    ///
    /// ```no_run
    /// # use postrider::{Handled, Verdict};
    /// # fn example(id: i64) -> Handled {
    /// Handled::from(Verdict::Done).with(move |tx| Box::pin(async move {
    ///     sqlx::query("update invoice set sent = true where id = $1").bind(id).execute(tx).await?;
    ///     Ok(())
    /// }))
    /// # }
    /// ```
    #[must_use]
    pub fn with<F>(mut self, effect: F) -> Self
    where
        F: for<'t> FnOnce(&'t mut PgConnection) -> BoxFuture<'t, Result<(), BoxError>>
            + Send
            + 'static,
    {
        self.effect = Some(Box::new(effect));
        self
    }

    /// Adds a value for [`Handler::batch_effect`](super::Handler::batch_effect), which writes the values of many items
    /// with one statement, in the transaction that settles them. It isn't written if the lease is lost.
    #[must_use]
    pub fn with_value<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.value = Some(Arc::new(value));
        self
    }
}

impl From<Verdict> for Handled {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            effect: None,
            value: None,
        }
    }
}

impl std::fmt::Debug for Handled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handled")
            .field("verdict", &self.verdict)
            .field("effect", &self.effect.is_some())
            .field("value", &self.value.is_some())
            .finish()
    }
}
