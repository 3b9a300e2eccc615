//! What a handler says about an item.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::PgConnection;

use super::BoxError;
use super::batch_effect::Value;
use crate::failure::Failure;

/// A handler's verdict: closed, so that every consequence is decided in one place.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It is done.
    Done,
    /// It failed; the policy says when and whether it is tried again, unless the failure is permanent.
    Retry {
        /// What went wrong.
        failure: Failure,
        /// The wait that the other side asked for (Retry-After), instead of the policy's.
        after: Option<Duration>,
    },
    /// Not now; later, at no cost.
    Snooze(Duration),
    /// It failed for good.
    Dead(Failure),
}

impl Verdict {
    /// A failure that the policy decides on.
    #[must_use]
    pub const fn retry(failure: Failure) -> Self {
        Self::Retry {
            failure,
            after: None,
        }
    }
}

/// Writes of the handler's own that commit together with the settling, or not at all.
pub type Effect =
    Box<dyn for<'t> FnOnce(&'t mut PgConnection) -> BoxFuture<'t, Result<(), BoxError>> + Send>;

/// A verdict, and what to write with it.
pub struct Handled {
    pub(super) verdict: Verdict,
    pub(super) effect: Option<Effect>,
    pub(super) carries: Option<Value>,
}

impl Handled {
    /// With writes that share the settling's transaction. They are rolled back if the lease is lost.
    ///
    /// ```ignore
    /// Handled::from(Verdict::Done).with(move |tx| Box::pin(async move {
    ///     sqlx::query("update invoice set sent = true where id = $1").bind(id).execute(tx).await?;
    ///     Ok(())
    /// }))
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

    /// With a value that [`Handler::batch_effect`](super::Handler::batch_effect) writes: one statement for many
    /// items, in one transaction with their settlings. It is not written if the lease is lost.
    #[must_use]
    pub fn with_value<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.carries = Some(Arc::new(value));
        self
    }
}

impl From<Verdict> for Handled {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            effect: None,
            carries: None,
        }
    }
}

impl std::fmt::Debug for Handled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handled")
            .field("verdict", &self.verdict)
            .field("effect", &self.effect.is_some())
            .field("carries", &self.carries.is_some())
            .finish()
    }
}
