//! What a person may do to a job: cancel it while it is open, redrive it when it has failed.

use postrider::{
    Error,
    audit::{self, AuditEntry},
    lease::{Operator, Queue},
};
use sqlx::PgPool;

use crate::{EXPORT_JOB_INPUT, counters, model::JobStatus, store::closing};

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such job.
    #[error("no job has this id")]
    Unknown,
    /// It is over.
    #[error("the job is {} and can't be cancelled", .0.as_str())]
    NotCancellable(JobStatus),
    /// There is nothing to be done anew.
    #[error("the job is {} and can't be redriven: {why}", status.as_str())]
    NotRedrivable {
        /// Where it stands.
        status: JobStatus,
        /// What stands against it.
        why: &'static str,
    },
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error.into())
    }
}

/// Calls a job off: what is running finishes and keeps its result, nothing else is begun. Twice is as good as once.
pub(crate) async fn cancel(pool: &PgPool, key: &str, operator: &Operator) -> Result<(), Refused> {
    let mut tx = pool.begin().await?;
    let locked = closing::lock(&mut tx, key).await?;
    let (job, number, status) = locked.ok_or(Refused::Unknown)?;
    match status {
        JobStatus::Submitted | JobStatus::Running => {}
        JobStatus::Cancelled => return Ok(()),
        JobStatus::Completed | JobStatus::Failed => return Err(Refused::NotCancellable(status)),
    }
    closing::cancel(&mut tx, job).await?;
    let deed = AuditEntry {
        action: "cancel",
        table: "exports.export_job",
        items: &[number],
    };
    audit::record(&mut tx, operator, deed).await?;
    tx.commit().await?;
    counters::job("cancelled", 1);
    tracing::info!(job = key, by = operator.name, "job cancelled");
    Ok(())
}

/// Lets the dead inputs of a failed job begin anew, and what was parked with them go on. Says how many were dead: none if
/// they were archived meanwhile, and what was parked goes on alone.
pub(crate) async fn redrive(
    pool: &PgPool,
    key: &str,
    operator: &Operator,
) -> Result<usize, Refused> {
    let mut tx = pool.begin().await?;
    let locked = closing::lock(&mut tx, key).await?;
    let (job, number, status) = locked.ok_or(Refused::Unknown)?;
    let refused = |why| Refused::NotRedrivable { status, why };
    match status {
        JobStatus::Failed => {}
        JobStatus::Submitted | JobStatus::Running => return Err(refused("it is still running")),
        JobStatus::Completed => return Err(refused("every input has its file")),
        JobStatus::Cancelled => {
            return Err(refused("it was called off; submit its inputs again"));
        }
    }
    let dead = closing::dead(&mut tx, job).await?;
    // A trigger on the table reopens the job with the first of them, whatever door they come back through.
    let redriven = Queue::new(&EXPORT_JOB_INPUT)?
        .redrive(&mut tx, operator, &dead)
        .await?;
    if redriven.ids.is_empty() {
        if !closing::open_again(&mut tx, job).await? {
            return Err(refused(
                "its failed inputs were archived and nothing else waits; submit them again",
            ));
        }
        let deed = AuditEntry {
            action: "redrive",
            table: "exports.export_job",
            items: &[number],
        };
        audit::record(&mut tx, operator, deed).await?;
    }
    tx.commit().await?;
    tracing::info!(
        job = key,
        inputs = redriven.ids.len(),
        by = operator.name,
        "job redriven"
    );
    Ok(redriven.ids.len())
}
