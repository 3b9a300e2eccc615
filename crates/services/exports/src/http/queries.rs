//! Endpoints that read: jobs, their inputs, progress and files.

use axum::{
    body::Body,
    extract::State,
    http::header,
    response::{
        IntoResponse, Response,
        sse::{KeepAlive, Sse},
    },
};
use postrider_web::{Cursor, Json, Limit, Page, Path, Problem, Query};
use serde::Deserialize;
use time::OffsetDateTime;

use super::job_body::job_body;
use crate::{
    ExportError, Exports, Filter,
    model::{Input, InputStatus, InputView, JobStatus, JobSummary, JobView, ProgressEvent},
    store,
};

/// Which jobs to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct JobsQuery {
    /// Filter by status.
    status: Option<JobStatus>,
    /// Only jobs accepted at or after this time (RFC 3339).
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<OffsetDateTime>,
    /// Only jobs accepted before this time (RFC 3339).
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<OffsetDateTime>,
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of jobs on the page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List jobs, newest first.
#[utoipa::path(get, path = "/jobs", tag = "exports", security(("bearer" = ["read"])), params(JobsQuery), responses(
    (status = 200, description = "one page", body = Page<JobSummary>),
))]
pub(super) async fn list_jobs(
    State(exports): State<Exports>,
    Query(query): Query<JobsQuery>,
) -> Result<Json<Page<JobSummary>>, Problem> {
    let filter = Filter {
        status: query.status,
        since: query.since,
        until: query.until,
    };
    let page = exports.list(&filter, query.cursor.as_ref(), query.limit);
    Ok(Json(page.await?))
}

/// Get a job: its progress and its files.
#[utoipa::path(get, path = "/jobs/{jobId}", tag = "exports", security(("bearer" = ["read"])), params(
    ("jobId" = String, Path, description = "the job's id")
), responses(
    (status = 200, description = "the job", body = JobView),
    (status = 404, description = "no such job"),
))]
pub(super) async fn get_job(
    State(exports): State<Exports>,
    Path(job_key): Path<String>,
) -> Result<Response, Problem> {
    view(&exports, &job_key).await
}

/// The current state of a job as a response.
pub(super) async fn view(exports: &Exports, job_key: &str) -> Result<Response, Problem> {
    let job = exports.find(job_key).await?;
    let progress = store::progress(exports.pool(), job).await?;
    Ok(job_body(exports.pool().clone(), job, progress))
}

/// Which inputs to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct InputsQuery {
    /// Filter by status; `DLQ` are the dead letters.
    status: Option<InputStatus>,
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of inputs on the page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List a job's inputs, in the order of the request.
#[utoipa::path(get, path = "/jobs/{jobId}/inputs", tag = "exports", security(("bearer" = ["read"])), params(
    ("jobId" = String, Path, description = "the job's id"), InputsQuery
), responses(
    (status = 200, description = "one page", body = Page<InputView>),
    (status = 404, description = "no such job"),
))]
pub(super) async fn list_inputs(
    State(exports): State<Exports>,
    Path(job_key): Path<String>,
    Query(query): Query<InputsQuery>,
) -> Result<Json<Page<InputView>>, Problem> {
    let page = exports.inputs(&job_key, query.status, query.cursor.as_ref(), query.limit);
    Ok(Json(page.await?))
}

/// Watch a job through server-sent events.
///
/// Sends `progress` after every change and `end` when the job is finished; both carry the same counts as the job itself.
#[utoipa::path(get, path = "/jobs/{jobId}/events", tag = "exports", security(("bearer" = ["read"])), params(
    ("jobId" = String, Path, description = "the job's id")
), responses(
    (status = 200, description = "a stream of events", body = ProgressEvent, content_type = "text/event-stream"),
    (status = 404, description = "no such job"),
))]
pub(super) async fn watch_job(
    State(exports): State<Exports>,
    Path(job_key): Path<String>,
) -> Result<Response, Problem> {
    let job = exports.find(&job_key).await?;
    let events = Sse::new(exports.streams().events(job));
    Ok(events.keep_alive(KeepAlive::default()).into_response())
}

/// Download the file of an input.
#[utoipa::path(get, path = "/jobs/{jobId}/files/{indexKey}/{effectiveDate}/{asofindicator}", tag = "exports",
    security(("bearer" = ["read"])), params(
    ("jobId" = String, Path, description = "the job's id"),
    ("indexKey" = String, Path, description = "the index"),
    ("effectiveDate" = i32, Path, description = "the day, as yyyymmdd"),
    ("asofindicator" = String, Path, description = "the as-of indicator"),
), responses(
    (status = 200, description = "the file", body = String, content_type = "text/csv"),
    (status = 404, description = "no such job, or no such file yet"),
    (status = 410, description = "the file was removed from the store; submit the input again"),
))]
pub(super) async fn get_file(
    State(exports): State<Exports>,
    Path((job_key, index_key, effective_date, asof_indicator)): Path<(String, String, i32, String)>,
) -> Result<Response, Problem> {
    let input = Input {
        index_key,
        effective_date,
        asof_indicator,
    };
    let path = exports.file(&job_key, &input).await?;
    let store = exports.store();
    let key = store.key_from_url(&path).ok_or(ExportError::NoFile)?;
    let content = store.read(&key).await.map_err(ExportError::Store)?;
    let name = path.rsplit('/').next().unwrap_or("export.csv");
    let content_type = if name.ends_with(".gz") {
        "application/gzip"
    } else {
        "text/csv; charset=utf-8"
    };
    let headers = [
        (header::CONTENT_TYPE, content_type.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    Ok((headers, Body::from_stream(content)).into_response())
}
