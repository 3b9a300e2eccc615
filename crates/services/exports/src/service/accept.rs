//! Accepts a job: all its inputs, and the idempotency key if there is one, in one transaction.

use std::sync::Arc;

use postrider::{
    Error,
    ledger::{Acceptance, Coalesce, Key, Ledger, LedgerError, Outcome},
    wake::Waker,
};
use serde_json::Value;
use sqlx::PgPool;

use crate::{
    EXPORT_JOB_INPUT, gauges,
    model::{Accepted, JobStatus, Submission},
    store,
};

/// The scope of this service in the ledger.
pub const SCOPE: &str = "exports";

/// The outcome of an accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptOutcome {
    /// A new job.
    Accepted(Accepted),
    /// The same request came before under this key; the job that it created.
    Replay(Accepted),
    /// A different request came before under this key.
    Mismatch,
}

#[derive(Debug)]
pub(crate) struct Acceptor {
    pool: PgPool,
    waker: Waker,
    ledger: Ledger,
    running: Coalesce<AcceptOutcome, LedgerError>,
}

impl Acceptor {
    pub fn new(pool: PgPool, waker: Waker) -> Self {
        Self {
            pool,
            waker,
            ledger: Ledger::default(),
            running: Coalesce::default(),
        }
    }

    pub async fn accept(
        &self,
        submission: &Submission,
        key: Option<&Key>,
    ) -> Result<AcceptOutcome, LedgerError> {
        let Some(key) = key else {
            return self.insert(submission).await;
        };
        let digest = submission
            .digest()
            .map_err(|error| LedgerError::Other(Error::invalid("inputs", error.to_string())))?;
        let insert = || self.insert_once(submission, key, digest);
        let shared = self.running.run(key, &digest, insert).await;
        let outcome = shared.map_err(into_own)?;
        Ok(match outcome {
            postrider::ledger::Coalesced::Joined(AcceptOutcome::Accepted(job)) => {
                AcceptOutcome::Replay(job)
            }
            other => other.into_inner(),
        })
    }

    async fn insert(&self, submission: &Submission) -> Result<AcceptOutcome, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let accepted = new_job(store::insert(&mut tx, submission).await?);
        tx.commit().await?;
        self.accepted(submission);
        Ok(AcceptOutcome::Accepted(accepted))
    }

    async fn insert_once(
        &self,
        submission: &Submission,
        key: &Key,
        digest: postrider::digest::Digest,
    ) -> Result<AcceptOutcome, LedgerError> {
        let mut tx = self.pool.begin().await?;
        match self.ledger.accept(&mut tx, key, &digest).await? {
            Acceptance::Mismatch => return Ok(AcceptOutcome::Mismatch),
            Acceptance::Replay(recorded) => {
                let job = recorded.result.map(serde_json::from_value);
                return match job {
                    Some(Ok(job)) => Ok(AcceptOutcome::Replay(job)),
                    Some(Err(_)) | None => Err(LedgerError::Unknown(key.clone())),
                };
            }
            Acceptance::Accepted => {}
        }
        let accepted = new_job(store::insert(&mut tx, submission).await?);
        let result = serde_json::to_value(&accepted).unwrap_or(Value::Null);
        let done = Outcome::Succeeded;
        self.ledger.finish(&mut tx, key, done, Some(result)).await?;
        postrider_crashpoint::point!("exports.before_accept").map_err(Error::from)?;
        tx.commit().await?;
        postrider_crashpoint::point!("exports.after_accept").map_err(Error::from)?;
        self.accepted(submission);
        Ok(AcceptOutcome::Accepted(accepted))
    }

    fn accepted(&self, submission: &Submission) {
        gauges::accepted(submission.inputs.len() as u64);
        self.waker.wake(&EXPORT_JOB_INPUT);
    }
}

fn new_job(key: String) -> Accepted {
    Accepted {
        job_id: key,
        status: JobStatus::Submitted,
    }
}

/// The caller that ran the insert gets the error itself, the ones that joined it get its text.
fn into_own(shared: Arc<LedgerError>) -> LedgerError {
    Arc::try_unwrap(shared).unwrap_or_else(|shared| {
        let error = sqlx::Error::Io(std::io::Error::other(shared.to_string()));
        LedgerError::Other(Error::Database(error))
    })
}
