//! Hooks that run after a settlement has committed.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A hook, if there is one.
#[derive(Default)]
pub(crate) struct AfterCommit(Option<Box<dyn FnOnce() + Send + Sync>>);

impl AfterCommit {
    pub fn new(hook: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(hook)))
    }

    /// Runs the hook, at most once. It is the handler's own code: a panic in it must not stop the settling of others.
    pub fn run(&mut self) {
        if let Some(hook) = self.0.take()
            && catch_unwind(AssertUnwindSafe(hook)).is_err()
        {
            tracing::error!("the on_settled hook panicked; the item is settled. Fix the hook");
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
