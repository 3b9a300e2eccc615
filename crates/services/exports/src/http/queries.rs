//! What only looks: jobs, their inputs, their progress, their files.

use axum::{
    body::Body,
    extract::State,
    http::header,
    response::{
        IntoResponse, Response,
        sse::{KeepAlive, Sse},
    },
};
use postrider_web::{Cursor, Json, Limit, Page, Path, Problem, Query, list_of};
use serde::Deserialize;
use time::OffsetDateTime;

use super::{
    Exports,
    answer::{self, no_file},
};
use crate::{
    model::{Input, InputStatus, InputView, JobStatus, JobSummary, JobView, ProgressEvent},
    store::{self, Filter},
};

/// The names of the listings in their cursors.
const JOBS: &str = "exports.jobs";
const INPUTS: &str = "exports.inputs";

/// Which jobs to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct JobsQuery {
    /// Only those that stand so.
    status: Option<JobStatus>,
    /// Only those accepted then or later (RFC 3339).
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<OffsetDateTime>,
    /// Only those accepted before (RFC 3339).
    #[serde(default, with = "time::serde::rfc3339::option")]
    #[param(value_type = Option<String>, format = DateTime)]
    until: Option<OffsetDateTime>,
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many jobs the page holds.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List jobs, the newest first.
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
    let list = list_of(JOBS, &filter)?;
    let before: Option<i64> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let rows = exports
        .list(&filter, before, query.limit.to_select())
        .await?;
    let page = Page::cut(rows, query.limit, &list, |(number, _)| *number)?;
    Ok(Json(page.map(|(_, job)| job)))
}

/// See a job: how far it has come, and where its files are.
#[utoipa::path(get, path = "/jobs/{jobId}", tag = "exports", security(("bearer" = ["read"])), params(
    ("jobId" = String, Path, description = "the job's id")
), responses(
    (status = 200, description = "what is known of it", body = JobView),
    (status = 404, description = "no such job"),
))]
pub(super) async fn get_job(
    State(exports): State<Exports>,
    Path(job_key): Path<String>,
) -> Result<Response, Problem> {
    let job = exports.find(&job_key).await?;
    let progress = store::progress(&exports.0.pool, job).await?;
    Ok(answer::job(exports.0.pool.clone(), job, progress))
}

/// Which inputs to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct InputsQuery {
    /// Only those that stand so; `DLQ` are the dead letters.
    status: Option<InputStatus>,
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many inputs the page holds.
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
    let job = exports.find(&job_key).await?;
    let list = list_of(INPUTS, &(job, query.status))?;
    let after: Option<i64> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let (after, limit) = (after.unwrap_or_default(), query.limit);
    let rows = store::inputs(&exports.0.pool, job, query.status, after, limit.to_select()).await?;
    let page = Page::cut(rows, limit, &list, |(id, _)| *id)?;
    Ok(Json(page.map(|(_, input)| input)))
}

/// Watch a job: server-sent events.
///
/// An event `progress` whenever something has changed, and one called `end` when the job is over; both carry the same
/// numbers as the job itself.
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
    let events = Sse::new(exports.0.watch.events(job));
    Ok(events.keep_alive(KeepAlive::default()).into_response())
}

/// Fetch the file of an input.
#[utoipa::path(get, path = "/jobs/{jobId}/files/{indexKey}/{effectiveDate}/{asofindicator}", tag = "exports",
    security(("bearer" = ["read"])), params(
    ("jobId" = String, Path, description = "the job's id"),
    ("indexKey" = String, Path, description = "which index"),
    ("effectiveDate" = i32, Path, description = "which day, as yyyymmdd"),
    ("asofindicator" = String, Path, description = "as of which moment"),
), responses(
    (status = 200, description = "the file", body = String, content_type = "text/csv"),
    (status = 404, description = "no such job, or no such file yet"),
    (status = 410, description = "the file was removed from the store; submit the input again"),
))]
pub(super) async fn get_file(
    State(exports): State<Exports>,
    Path((job_key, index_key, effective_date, asof_indicator)): Path<(String, String, i32, String)>,
) -> Result<Response, Problem> {
    let job = exports.find(&job_key).await?;
    let input = Input {
        index_key,
        effective_date,
        asof_indicator,
    };
    let path = store::file(&exports.0.pool, job, &input).await?;
    let path = path.ok_or_else(no_file)?;
    let store = &exports.0.store;
    let key = store.key_of(&path).ok_or_else(no_file)?;
    let content = store.read(&key).await.map_err(answer::unread)?;
    let name = path.rsplit('/').next().unwrap_or("export.csv");
    let kind = if name.ends_with(".gz") {
        "application/gzip"
    } else {
        "text/csv; charset=utf-8"
    };
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    Ok((headers, Body::from_stream(content)).into_response())
}
