//! The facade that HTTP, the console and tests call: accept, get, list, cancel, redrive.

mod accept;

use std::sync::Arc;

use postrider::{
    audit::{self, AuditEntry},
    lease::{Operator, Queue},
    ledger::Key,
    wake::Waker,
};
use postrider_blob::Store;
use postrider_inspect::timeline::Timeline;
use postrider_web::{Cursor, Limit, Page, Problem, list_id};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    EXPORT_JOB_INPUT, ExportError,
    events::ProgressStreams,
    gauges,
    model::{Input, InputStatus, InputView, JobStatus, JobSummary, Progress, Submission},
    store::{self, Filter, closing},
    timeline,
};
use accept::Acceptor;

pub use accept::{AcceptOutcome, SCOPE};

/// The names of the listings in their cursors.
const JOBS: &str = "exports.jobs";
const INPUTS: &str = "exports.inputs";

/// The exports service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Exports(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    store: Store,
    waker: Waker,
    acceptor: Acceptor,
    streams: ProgressStreams,
}

impl Exports {
    /// Starts accepting jobs; progress streams end with `stop`. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, store: Store, stop: CancellationToken) -> Self {
        gauges::register();
        let waker = Waker::new(pool.clone());
        Self(Arc::new(Inner {
            acceptor: Acceptor::new(pool.clone(), waker.clone()),
            streams: ProgressStreams::new(pool.clone(), stop),
            pool,
            store,
            waker,
        }))
    }

    /// Accepts a job, or returns the one that the same request created before. Returns once that is durable.
    pub async fn accept(
        &self,
        submission: &Submission,
        key: Option<&Key>,
    ) -> Result<AcceptOutcome, ExportError> {
        Ok(self.0.acceptor.accept(submission, key).await?)
    }

    /// A job's progress; `None` if there is no such job.
    pub async fn progress(&self, job_key: &str) -> Result<Option<Progress>, sqlx::Error> {
        match store::find(&self.0.pool, job_key).await? {
            Some(job) => store::progress(&self.0.pool, job).await.map(Some),
            None => Ok(None),
        }
    }

    /// The progress of each of these jobs; unknown ones are left out.
    pub async fn progress_of(&self, job_keys: &[&str]) -> Result<Vec<Progress>, sqlx::Error> {
        store::progress_of(&self.0.pool, job_keys).await
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
        let rows = store::list(&self.0.pool, filter, before, limit.rows_to_fetch()).await?;
        let page = Page::from_rows(rows, limit, &list, |(number, _)| *number)?;
        Ok(page.map(|(_, job)| job))
    }

    /// One page of a job's inputs, in the order of the request.
    pub async fn inputs(
        &self,
        job_key: &str,
        status: Option<InputStatus>,
        cursor: Option<&Cursor>,
        limit: Limit,
    ) -> Result<Page<InputView>, Problem> {
        let job = self.find(job_key).await?;
        let list = list_id(INPUTS, &(job, status))?;
        let after: Option<i64> = cursor.map(|cursor| cursor.decode(&list)).transpose()?;
        let after = after.unwrap_or_default();
        let rows = store::inputs(&self.0.pool, job, status, after, limit.rows_to_fetch()).await?;
        let page = Page::from_rows(rows, limit, &list, |(id, _)| *id)?;
        Ok(page.map(|(_, input)| input))
    }

    /// The address of a finished input's file.
    pub async fn file(&self, job_key: &str, input: &Input) -> Result<String, ExportError> {
        let job = self.find(job_key).await?;
        let path = store::file(&self.0.pool, job, input).await?;
        path.ok_or(ExportError::NoFile)
    }

    /// The timeline of a job, by its key, its id or the id of one of its inputs; empty if there is none.
    pub async fn timeline(&self, id: &str) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::timeline(&self.0.pool, id).await
    }

    /// Cancels an open job: running inputs finish and keep their result, nothing else starts. Idempotent.
    pub async fn cancel(&self, job_key: &str, operator: &Operator) -> Result<(), ExportError> {
        let mut tx = self.0.pool.begin().await?;
        let locked = closing::lock(&mut tx, job_key).await?;
        let (job, number, status) = locked.ok_or(ExportError::NotFound)?;
        match status {
            JobStatus::Submitted | JobStatus::Running => {}
            JobStatus::Cancelled => return Ok(()),
            JobStatus::Completed | JobStatus::Failed => {
                return Err(ExportError::NotCancellable(status));
            }
        }
        closing::cancel(&mut tx, job).await?;
        audit::record(&mut tx, operator, audit_entry("cancel", &[number])).await?;
        tx.commit().await?;
        gauges::job("cancelled", 1);
        tracing::info!(job = job_key, by = operator.name, "job cancelled");
        Ok(())
    }

    /// Gives the dead inputs of a failed job fresh attempts and resumes the parked ones. Returns the number of dead
    /// inputs: zero if they were archived meanwhile and only parked ones resume.
    pub async fn redrive(&self, job_key: &str, operator: &Operator) -> Result<usize, ExportError> {
        let mut tx = self.0.pool.begin().await?;
        let locked = closing::lock(&mut tx, job_key).await?;
        let (job, number, status) = locked.ok_or(ExportError::NotFound)?;
        let refuse = |reason| ExportError::NotRedrivable { status, reason };
        match status {
            JobStatus::Failed => {}
            JobStatus::Submitted | JobStatus::Running => return Err(refuse("it is still running")),
            JobStatus::Completed => return Err(refuse("every input has its file")),
            JobStatus::Cancelled => {
                return Err(refuse("it was cancelled; submit its inputs again"));
            }
        }
        let dead = closing::dead_inputs(&mut tx, job).await?;
        // A trigger on the table reopens the job with the first of them, whichever way they are redriven.
        let redriven = Queue::new(&EXPORT_JOB_INPUT)?
            .redrive(&mut tx, operator, &dead)
            .await?;
        if redriven.ids.is_empty() {
            if !closing::reopen(&mut tx, job).await? {
                return Err(refuse(
                    "its failed inputs were archived and nothing else waits; submit them again",
                ));
            }
            audit::record(&mut tx, operator, audit_entry("redrive", &[number])).await?;
        }
        tx.commit().await?;
        self.0.waker.wake(&EXPORT_JOB_INPUT);
        let inputs = redriven.ids.len();
        tracing::info!(job = job_key, inputs, by = operator.name, "job redriven");
        Ok(inputs)
    }

    pub(crate) async fn find(&self, job_key: &str) -> Result<Uuid, ExportError> {
        let job = store::find(&self.0.pool, job_key).await?;
        job.ok_or(ExportError::NotFound)
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn streams(&self) -> &ProgressStreams {
        &self.0.streams
    }
}

const fn audit_entry<'a>(action: &'static str, items: &'a [i64]) -> AuditEntry<'a> {
    AuditEntry {
        action,
        table: "exports.export_job",
        items,
    }
}
