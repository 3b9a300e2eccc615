//! The store and the source behind a breaker: an outage spends no more attempts than the breaker needs to notice it.

use std::{sync::Arc, time::Duration};

use postrider::breaker::{Breaker, Outcome, Permit, State};
use postrider_blob::Error;

use crate::error::FileError;

/// Maximum time that an input waits for the breaker while it holds its claim.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// An outside dependency.
#[derive(Debug)]
pub(crate) struct Dependency {
    breaker: Arc<Breaker>,
}

impl Dependency {
    pub const fn new(breaker: Arc<Breaker>) -> Self {
        Self { breaker }
    }

    /// Whether it was unavailable a moment ago.
    pub fn is_suspect(&self) -> bool {
        self.breaker.state() != State::Closed
    }

    /// Permission to call it. Waits a little while the breaker is open: snoozing and claiming the input again costs the
    /// database more.
    pub async fn enter(&self) -> Result<DependencyCall, FileError> {
        let wait = match self.breaker.permit() {
            Ok(permit) => return Ok(self.begin(permit)),
            Err(open) => open.retry_after,
        };
        tokio::time::sleep(wait.min(MAX_WAIT)).await;
        match self.breaker.permit() {
            Ok(permit) => Ok(self.begin(permit)),
            Err(open) => Err(FileError::Snooze(open.retry_after)),
        }
    }

    /// One call to the store.
    pub async fn call<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, FileError> {
        let call = self.enter().await?;
        match work.await {
            Ok(answer) => {
                call.succeeded();
                Ok(answer)
            }
            Err(error) => Err(call.failed(FileError::store(&error))),
        }
    }

    fn begin(&self, permit: Permit) -> DependencyCall {
        DependencyCall {
            breaker: Arc::clone(&self.breaker),
            permit,
        }
    }
}

/// A call under way; report how it ended. Dropping it reports nothing to the breaker.
#[derive(Debug)]
pub(crate) struct DependencyCall {
    breaker: Arc<Breaker>,
    permit: Permit,
}

impl DependencyCall {
    pub fn succeeded(self) {
        self.permit.report(Outcome::Answered);
    }

    /// Reports a failure. A call that was under way when others opened the breaker spends no attempt.
    pub fn failed(self, error: FileError) -> FileError {
        let FileError::Unavailable(failure) = error else {
            self.permit.report(Outcome::Answered);
            return error;
        };
        let known = self.breaker.state() == State::Open;
        self.permit.report(Outcome::Unavailable);
        match (known, self.breaker.permit()) {
            (true, Err(open)) => FileError::Snooze(open.retry_after),
            _ => FileError::Unavailable(failure),
        }
    }
}
