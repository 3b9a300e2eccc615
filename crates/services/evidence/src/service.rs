//! The facade that HTTP, the console and tests call: submit, get, list, retry.

use std::sync::Arc;

use postrider::{Error, lease::Operator};
use postrider_blob::Store;
use postrider_inspect::timeline::Timeline;
use postrider_web::{Cursor, Limit, Page, Problem, list_id};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    EvidenceError, Settings, gauges,
    ingest::Intake,
    model::{JobStatus, JobSummary, JobView},
    scheduler::Scheduler,
    store::{
        schedule,
        view::{self, Filter},
    },
    timeline,
};

/// The names of the listings in their cursors.
const JOBS: &str = "file-jobs";
const ROWS: &str = "file-job-rows";

/// The outcome of a manual retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Retried {
    /// The job.
    pub file_job_id: Uuid,
    /// Number of rows that are retried now.
    pub scheduled_rows: usize,
    /// Number of artifacts that are retried now.
    pub scheduled_artifacts: usize,
    /// Number of retryable artifacts that aren't due yet.
    pub waiting: i64,
    /// When the first of them is due.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_retry_at: Option<OffsetDateTime>,
}

/// The evidence service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Evidence(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    intake: Intake,
    scheduler: Scheduler,
}

impl Evidence {
    /// Starts accepting jobs. Must be called inside a tokio runtime.
    pub fn start(pool: PgPool, store: Store, settings: &Settings) -> Result<Self, Error> {
        gauges::register();
        Ok(Self(Arc::new(Inner {
            intake: Intake::new(pool.clone(), store.clone(), settings),
            scheduler: Scheduler::new(pool.clone(), store, settings)?,
            pool,
        })))
    }

    /// Accepts jobs from archives and JSON.
    #[must_use]
    pub fn intake(&self) -> &Intake {
        &self.0.intake
    }

    /// A job's summary; `None` if there is no such job.
    pub async fn get(&self, id: Uuid) -> Result<Option<JobSummary>, sqlx::Error> {
        let found = view::job(&self.0.pool, id).await?;
        Ok(found.map(|(job, _)| job))
    }

    /// A job with one page of its rows.
    pub async fn view(
        &self,
        id: Uuid,
        cursor: Option<&Cursor>,
        limit: Limit,
    ) -> Result<JobView, Problem> {
        let pool = &self.0.pool;
        let list = list_id(ROWS, &id)?;
        let after: Option<i32> = cursor.map(|cursor| cursor.decode(&list)).transpose()?;
        let found = view::job(pool, id).await?;
        let (job, row_count) = found.ok_or(EvidenceError::NotFound)?;
        let rows = view::rows(pool, id, after.unwrap_or(0), limit.rows_to_fetch()).await?;
        let page = Page::from_rows(rows, limit, &list, |row| row.row_number)?;
        Ok(JobView {
            job,
            row_count,
            errors: view::errors(pool, id).await?,
            notifications: view::notifications(pool, id).await?,
            rows: page.items,
            next_cursor: page.next_cursor,
        })
    }

    /// One page of jobs, newest first.
    pub async fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: Limit,
    ) -> Result<Page<JobSummary>, Problem> {
        let list = list_id(JOBS, filter)?;
        let before = cursor.map(|cursor| cursor.decode(&list)).transpose()?;
        let jobs = view::list(&self.0.pool, filter, before, limit.rows_to_fetch()).await?;
        Page::from_rows(jobs, limit, &list, |job| job.file_job_id)
    }

    /// The timeline of a job, by its id or that of a row, an artifact or a notification; empty if there is none.
    pub async fn timeline(&self, id: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::timeline(&self.0.pool, id).await
    }

    /// Runs the retry scheduler for a job now; with `early`, also for artifacts that aren't due yet.
    pub async fn retry(
        &self,
        job: Uuid,
        early: bool,
        operator: &Operator,
    ) -> Result<Retried, EvidenceError> {
        let Inner {
            pool, scheduler, ..
        } = &*self.0;
        let summary = self.get(job).await?.ok_or(EvidenceError::NotFound)?;
        if summary.status == JobStatus::Completed {
            return Err(EvidenceError::Closed);
        }
        if early {
            schedule::make_due(pool, job, operator).await?;
        }
        let mut scheduled = schedule::Scheduled::default();
        loop {
            let batch = scheduler.schedule(Some(job), "MANUAL_RETRY").await?;
            scheduled.rows += batch.rows;
            scheduled.artifacts += batch.artifacts;
            if batch.rows == 0 {
                break;
            }
        }
        let (waiting, next_retry_at) = schedule::waiting(pool, job).await?;
        tracing::info!(%job, rows = scheduled.rows, by = operator.name, "manual retry scheduled");
        Ok(Retried {
            file_job_id: job,
            scheduled_rows: scheduled.rows,
            scheduled_artifacts: scheduled.artifacts,
            waiting,
            next_retry_at,
        })
    }
}
