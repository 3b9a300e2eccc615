//! The HTTP API: submit, get and list jobs, retry now.

use std::time::Duration;

use axum::{
    extract::{FromRef, FromRequest, Request, State},
    http::{HeaderMap, StatusCode, header},
};
use postrider::lease::Operator;
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, Scope,
    error_code::codes::{REQUEST_TIMEOUT, UNSUPPORTED_MEDIA_TYPE},
    params::read_query,
    require, time_limit,
};
use serde::Deserialize;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    Evidence, Filter,
    ingest::{Accepted, Intake, receive},
    model::{JobRequest, JobStatus, JobSummary, JobView},
    service::Retried,
};

/// Lifts the program's request timeout: uploads have a configured one of their own.
const MAX_UPLOAD_TIME: Duration = Duration::from_secs(86_400);

/// The routes, for a program whose state contains [`Evidence`].
pub fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Evidence: FromRef<S>,
{
    let submit = OpenApiRouter::new()
        .routes(routes!(post_job))
        .route_layer(time_limit(MAX_UPLOAD_TIME))
        .route_layer(require(Scope::Submit));
    let read = OpenApiRouter::new()
        .routes(routes!(get_job))
        .routes(routes!(list_jobs))
        .route_layer(require(Scope::Read));
    let operate = OpenApiRouter::new()
        .routes(routes!(retry_job))
        .route_layer(require(Scope::Operate));
    submit.merge(read).merge(operate)
}

/// Parameters of an upload.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct UploadQuery {
    /// The merchant, if the body is the archive itself.
    merchant_id: Option<String>,
}

/// Submit a job.
///
/// A ZIP archive with `manifest.csv` (header `case_id,reference,files`; file names separated by `;`) and the files, as
/// the body or as the field `file` of a form; or JSON that names objects in the store. A response of 202 means that
/// everything is durable. A rejected job leaves nothing behind.
#[utoipa::path(post, path = "/file-jobs", tag = "evidence", security(("bearer" = ["submit"])), params(UploadQuery), request_body(content(
    (JobRequest = "application/json"),
    (Vec<u8> = "application/zip"),
    (Vec<u8> = "multipart/form-data"),
)), responses(
    (status = 202, description = "accepted; its files will be attached", body = Accepted),
    (status = 413, description = "the archive is too large"),
    (status = 422, description = "an entry, a line of the manifest or a value is invalid; the response names it"),
))]
async fn post_job(
    State(evidence): State<Evidence>,
    request: Request,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let intake = evidence.intake();
    let accepted = match media(request.headers()) {
        Media::Json => {
            read_query::<NoQuery>(request.uri().query().unwrap_or_default())?;
            let Json(job) = Json::<JobRequest>::from_request(request, &()).await?;
            intake.json(job).await?
        }
        Media::Zip => upload(intake, request, None).await?,
        Media::Form(boundary) => upload(intake, request, Some(boundary)).await?,
        Media::Other => {
            return Err(Problem::new(
                &UNSUPPORTED_MEDIA_TYPE,
                "Send an archive as application/zip or as the field `file` of multipart/form-data, or JSON as application/json.",
            ));
        }
    };
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

#[derive(Deserialize)]
struct NoQuery {}

async fn upload(
    intake: &Intake,
    request: Request,
    boundary: Option<String>,
) -> Result<Accepted, Problem> {
    let query: UploadQuery = read_query(request.uri().query().unwrap_or_default())?;
    let limits = intake.limits;
    let max_size = limits.max_archive.as_u64();
    let receiving = receive(request.into_body(), boundary, query.merchant_id, max_size);
    let received = tokio::time::timeout(limits.timeout, receiving)
        .await
        .map_err(|_| {
            let seconds = limits.timeout.as_secs();
            Problem::new(
                &REQUEST_TIMEOUT,
                format!("The archive did not arrive within {seconds} s; nothing was stored."),
            )
        })??;
    Ok(intake.zip(received.merchant_id, received.archive).await?)
}

enum Media {
    Json,
    Zip,
    Form(String),
    Other,
}

fn media(headers: &HeaderMap) -> Media {
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "application/zip" | "application/x-zip-compressed" => Media::Zip,
        "multipart/form-data" => multer::parse_boundary(text).map_or(Media::Other, Media::Form),
        json if json == "application/json" || json.ends_with("+json") => Media::Json,
        _ => Media::Other,
    }
}

/// Which rows of a job to return.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct RowsQuery {
    /// `next_cursor` of the previous page of rows.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of rows on the page.
    #[serde(default = "max_rows")]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 500)]
    limit: Limit,
}

fn max_rows() -> Limit {
    Limit::new(u64::from(Limit::MAX)).unwrap_or_default()
}

/// Get a job: its counts, notifications, rows and artifacts.
#[utoipa::path(get, path = "/file-jobs/{id}", tag = "evidence", security(("bearer" = ["read"])), params(
    ("id" = Uuid, Path, description = "the job"), RowsQuery
), responses(
    (status = 200, description = "the job with one page of its rows", body = JobView),
    (status = 404, description = "no such job"),
))]
async fn get_job(
    State(evidence): State<Evidence>,
    Path(id): Path<Uuid>,
    Query(query): Query<RowsQuery>,
) -> Result<Json<JobView>, Problem> {
    let view = evidence.view(id, query.cursor.as_ref(), query.limit);
    Ok(Json(view.await?))
}

/// Which jobs to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Filter by merchant.
    merchant_id: Option<String>,
    /// Filter by status.
    status: Option<JobStatus>,
    /// `next_cursor` of the previous page.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// Maximum number of jobs on the page.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List jobs, newest first.
#[utoipa::path(get, path = "/file-jobs", tag = "evidence", security(("bearer" = ["read"])), params(ListQuery), responses(
    (status = 200, description = "one page", body = Page<JobSummary>),
))]
async fn list_jobs(
    State(evidence): State<Evidence>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page<JobSummary>>, Problem> {
    let filter = Filter {
        merchant: query.merchant_id,
        status: query.status,
    };
    let page = evidence.list(&filter, query.cursor.as_ref(), query.limit);
    Ok(Json(page.await?))
}

/// Parameters of a retry.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct RetryQuery {
    /// Whether to include artifacts that aren't due yet. Permanent failures and exhausted artifacts stay as they are.
    #[serde(default)]
    early: bool,
}

/// Run the retry scheduler for this job now.
#[utoipa::path(post, path = "/file-jobs/{id}/retry", tag = "evidence", security(("bearer" = ["operate"])), params(
    ("id" = Uuid, Path, description = "the job"), RetryQuery
), responses(
    (status = 202, description = "artifacts that are due are retried", body = Retried),
    (status = 404, description = "no such job"),
    (status = 409, description = "the job is closed"),
))]
async fn retry_job(
    State(evidence): State<Evidence>,
    caller: Caller,
    Path(id): Path<Uuid>,
    Query(query): Query<RetryQuery>,
) -> Result<(StatusCode, Json<Retried>), Problem> {
    let operator = Operator::new(caller.name());
    let retried = evidence.retry(id, query.early, &operator).await?;
    Ok((StatusCode::ACCEPTED, Json(retried)))
}
