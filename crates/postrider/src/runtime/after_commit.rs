//! Telling of a settling, once it has committed.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Who wants to know that a settling has committed; nobody, as a rule.
#[derive(Default)]
pub(crate) struct AfterCommit(Option<Box<dyn FnOnce() + Send + Sync>>);

impl AfterCommit {
    pub fn new(tell: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(tell)))
    }

    /// Tells, at most once. It is the handler's own code: a panic in it must not stop the settling of others.
    pub fn tell(&mut self) {
        if let Some(tell) = self.0.take()
            && catch_unwind(AssertUnwindSafe(tell)).is_err()
        {
            tracing::error!("what was to be told after a settling panicked");
        }
    }
}

impl std::fmt::Debug for AfterCommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AfterCommit")
            .field(&self.0.is_some())
            .finish()
    }
}
