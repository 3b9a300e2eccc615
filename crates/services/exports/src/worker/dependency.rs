//! The store and the source behind a breaker: an outage spends no more attempts than the breaker needs to see it.

use std::{sync::Arc, time::Duration};

use postrider::breaker::{Breaker, Outcome, Permit, State};
use postrider_blob::Error;

use crate::trouble::Trouble;

/// How long an input waits in its place for a breaker to let it through, before it goes back to the table.
const WAIT_IN_PLACE: Duration = Duration::from_secs(10);

/// An outside dependency.
#[derive(Debug)]
pub(crate) struct Dependency {
    breaker: Arc<Breaker>,
}

impl Dependency {
    pub const fn new(breaker: Arc<Breaker>) -> Self {
        Self { breaker }
    }

    /// Was it away a moment ago?
    pub fn is_suspect(&self) -> bool {
        self.breaker.state() != State::Closed
    }

    /// The right to call it. While it is away we wait a little in our place: going back to the table and being claimed
    /// again costs the database more.
    pub async fn enter(&self) -> Result<Visit, Trouble> {
        let wait = match self.breaker.permit() {
            Ok(permit) => return Ok(self.visit(permit)),
            Err(open) => open.retry_after,
        };
        tokio::time::sleep(wait.min(WAIT_IN_PLACE)).await;
        match self.breaker.permit() {
            Ok(permit) => Ok(self.visit(permit)),
            Err(open) => Err(Trouble::Later(open.retry_after)),
        }
    }

    /// One call to the store.
    pub async fn call<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Trouble> {
        let visit = self.enter().await?;
        match work.await {
            Ok(answer) => {
                visit.answered();
                Ok(answer)
            }
            Err(error) => Err(visit.left(Trouble::store(&error))),
        }
    }

    fn visit(&self, permit: Permit) -> Visit {
        Visit {
            breaker: Arc::clone(&self.breaker),
            permit,
        }
    }
}

/// One visit; say how it ended. Dropped, it says nothing about the dependency.
#[derive(Debug)]
pub(crate) struct Visit {
    breaker: Arc<Breaker>,
    permit: Permit,
}

impl Visit {
    pub fn answered(self) {
        self.permit.report(Outcome::Answered);
    }

    /// It ended so. Whoever was under way when others found out that nobody is there pays nothing for it.
    pub fn left(self, trouble: Trouble) -> Trouble {
        let Trouble::Away(failure) = trouble else {
            self.permit.report(Outcome::Answered);
            return trouble;
        };
        let known = self.breaker.state() == State::Open;
        self.permit.report(Outcome::Unavailable);
        match (known, self.breaker.permit()) {
            (true, Err(open)) => Trouble::Later(open.retry_after),
            _ => Trouble::Away(failure),
        }
    }
}
