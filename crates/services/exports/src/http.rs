//! The API: submit a job, see it, watch it, list jobs and inputs, fetch files, cancel, redrive.

mod answer;
mod reading;
mod writing;

use std::sync::Arc;

use axum::extract::FromRef;
use postrider::{
    lease::Operator,
    ledger::{Key, LedgerError},
    wake::Waker,
};
use postrider_blob::Store;
use postrider_inspect::timeline::Timeline;
use postrider_web::{Problem, Scope, body_limit, require};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    EXPORT_JOB_INPUT,
    accept::{Acceptor, Answer},
    codes::EXPORT_JOB_NOT_FOUND,
    counters,
    events::Watch,
    model::{JobSummary, Progress, Submission},
    operate::{self, Refused},
    store::{self, Filter},
    timeline,
};

/// The most inputs of one job with the longest keys fit, with room for white space.
const LARGEST_REQUEST: usize = 32 * 1024 * 1024;

/// The service behind the API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Exports(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    store: Store,
    waker: Waker,
    acceptor: Acceptor,
    watch: Watch,
}

impl Exports {
    /// Starts accepting; streams of progress end with `stop`. Call it inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, store: Store, stop: CancellationToken) -> Self {
        counters::register();
        let waker = Waker::new(pool.clone());
        Self(Arc::new(Inner {
            acceptor: Acceptor::new(pool.clone(), waker.clone()),
            watch: Watch::new(pool.clone(), stop),
            pool,
            store,
            waker,
        }))
    }

    /// Accepts a job, or tells which one was made of the same request; returns when that is durable.
    pub async fn accept(
        &self,
        submission: &Submission,
        key: Option<&Key>,
    ) -> Result<Answer, LedgerError> {
        self.0.acceptor.accept(submission, key).await
    }

    /// What happened to a job, by its key, its id, or the id of one of its inputs.
    pub async fn trail(&self, id: &str) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::trail(&self.0.pool, id).await
    }

    /// Calls a job off.
    pub async fn cancel(&self, job_key: &str, operator: &Operator) -> Result<(), Refused> {
        operate::cancel(&self.0.pool, job_key, operator).await
    }

    /// Lets the dead inputs of a failed job begin anew; says how many.
    pub async fn redrive(&self, job_key: &str, operator: &Operator) -> Result<usize, Refused> {
        let redriven = operate::redrive(&self.0.pool, job_key, operator).await?;
        self.0.waker.wake(&EXPORT_JOB_INPUT);
        Ok(redriven)
    }

    /// How far a job has come; none if there is no such job.
    pub async fn progress(&self, job_key: &str) -> Result<Option<Progress>, sqlx::Error> {
        match store::find(&self.0.pool, job_key).await? {
            Some(job) => store::progress(&self.0.pool, job).await.map(Some),
            None => Ok(None),
        }
    }

    /// How far each of these jobs has come; one that there is not is left out.
    pub async fn progress_of(&self, job_keys: &[&str]) -> Result<Vec<Progress>, sqlx::Error> {
        store::progress_of(&self.0.pool, job_keys).await
    }

    /// The newest jobs first, older than the place `before`; each with its place.
    pub async fn list(
        &self,
        filter: &Filter,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<(i64, JobSummary)>, sqlx::Error> {
        store::list(&self.0.pool, filter, before, limit).await
    }

    async fn find(&self, job_key: &str) -> Result<Uuid, Problem> {
        let found = store::find(&self.0.pool, job_key).await?;
        found.ok_or_else(|| Problem::new(&EXPORT_JOB_NOT_FOUND, "No job has this id."))
    }
}

/// The routes, for a program whose state has [`Exports`] in it.
pub fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Exports: FromRef<S>,
{
    let submit = OpenApiRouter::new()
        .routes(routes!(writing::post_job))
        .route_layer(body_limit(LARGEST_REQUEST))
        .routes(routes!(writing::cancel_job))
        .route_layer(require(Scope::Submit));
    let read = OpenApiRouter::new()
        .routes(routes!(reading::list_jobs))
        .routes(routes!(reading::get_job))
        .routes(routes!(reading::list_inputs))
        .routes(routes!(reading::watch_job))
        .routes(routes!(reading::get_file))
        .route_layer(require(Scope::Read));
    let operate = OpenApiRouter::new()
        .routes(routes!(writing::redrive_job))
        .route_layer(require(Scope::Operate));
    submit.merge(read).merge(operate)
}
