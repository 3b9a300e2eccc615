//! What a person may do to a job: have the scheduler run for it now.

use postrider::{Error, lease::Operator};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{model::JobStatus, scheduler::Scheduler, store::schedule, store::view};

/// What a retry by hand did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retried {
    /// The job.
    pub file_job_id: Uuid,
    /// Rows that an event was put for.
    pub scheduled_rows: usize,
    /// Artifacts that will be tried again.
    pub scheduled_artifacts: usize,
    /// Artifacts that are retryable and not due yet.
    pub waiting: i64,
    /// When the first of them is.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_retry_at: Option<OffsetDateTime>,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such job.
    #[error("no file job has this id")]
    Unknown,
    /// It is finished.
    #[error(
        "the job is closed: nothing of it is changed any more; hand new evidence in as a new job"
    )]
    Closed,
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error.into())
    }
}

/// Runs the scheduler for one job; `early` also for what is not due yet.
pub(crate) async fn retry(
    pool: &PgPool,
    scheduler: &Scheduler,
    job: Uuid,
    early: bool,
    operator: &Operator,
) -> Result<Retried, Refused> {
    let (summary, _) = view::job(pool, job).await?.ok_or(Refused::Unknown)?;
    if summary.status == JobStatus::Completed {
        return Err(Refused::Closed);
    }
    if early {
        schedule::bring_forward(pool, job, operator).await?;
    }
    let mut put = schedule::Scheduled::default();
    loop {
        let batch = scheduler.put(Some(job), "MANUAL_RETRY").await?;
        put.rows += batch.rows;
        put.artifacts += batch.artifacts;
        if batch.rows == 0 {
            break;
        }
    }
    let (waiting, next_retry_at) = schedule::waiting(pool, job).await?;
    tracing::info!(%job, rows = put.rows, by = operator.name, "retries are put by hand");
    Ok(Retried {
        file_job_id: job,
        scheduled_rows: put.rows,
        scheduled_artifacts: put.artifacts,
        waiting,
        next_retry_at,
    })
}
