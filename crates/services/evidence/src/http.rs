//! The API: hand a job in, see it, list jobs, have its retries run now.

use std::sync::Arc;
use std::time::Duration;

use axum::{
    extract::{FromRef, FromRequest, Request, State},
    http::{HeaderMap, StatusCode, header},
};
use postrider::{Error, lease::Operator};
use postrider_blob::Store;
use postrider_inspect::timeline::Timeline;
use postrider_web::{
    Caller, Cursor, Json, Limit, Page, Path, Problem, Query, Scope,
    error_code::codes::{REQUEST_TIMEOUT, UNSUPPORTED_MEDIA_TYPE},
    list_id,
    params::read_query,
    require, time_limit,
};
use serde::Deserialize;
use sqlx::PgPool;
use utoipa_axum::{router::OpenApiRouter, routes};
use uuid::Uuid;

use crate::{
    Settings,
    codes::{FILE_JOB_CLOSED, FILE_JOB_NOT_FOUND},
    counters,
    ingest::{Accepted, Intake, receive},
    model::{JobRequest, JobStatus, JobSummary, JobView},
    operate::{self, Refused, Retried},
    scheduler::Scheduler,
    store::view::{self, Filter},
    timeline,
};

/// The names of the listings in their cursors.
const JOBS: &str = "file-jobs";
const ROWS: &str = "file-job-rows";

/// An upload has a limit of its own, which is configured; this only lifts the program's.
const LONGEST_UPLOAD: Duration = Duration::from_secs(86_400);

/// The service behind the API. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Evidence(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    intake: Intake,
    scheduler: Scheduler,
}

impl Evidence {
    /// Starts taking jobs in. Call it inside a tokio runtime.
    pub fn start(pool: PgPool, store: Store, settings: &Settings) -> Result<Self, Error> {
        counters::register();
        Ok(Self(Arc::new(Inner {
            intake: Intake::new(pool.clone(), store.clone(), settings),
            scheduler: Scheduler::new(pool.clone(), store, settings)?,
            pool,
        })))
    }

    /// The newest jobs first, older than the job `before`.
    pub async fn list(
        &self,
        filter: &Filter,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<JobSummary>, sqlx::Error> {
        view::list(&self.0.pool, filter, before, limit).await
    }

    /// How far a job has come; none if there is no such job.
    pub async fn show(&self, id: Uuid) -> Result<Option<JobSummary>, sqlx::Error> {
        let found = view::job(&self.0.pool, id).await?;
        Ok(found.map(|(job, _)| job))
    }

    /// Runs the retry scheduler for a job now; `early` also for what is not due yet.
    pub async fn retry(
        &self,
        id: Uuid,
        early: bool,
        operator: &Operator,
    ) -> Result<Retried, Refused> {
        let Inner {
            pool, scheduler, ..
        } = &*self.0;
        operate::retry(pool, scheduler, id, early, operator).await
    }

    /// What happened to a file job, by its id or that of a row, an artifact or a notification of it.
    pub async fn trail(&self, id: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::trail(&self.0.pool, id).await
    }
}

/// The routes, for a program whose state has [`Evidence`] in it.
pub fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Evidence: FromRef<S>,
{
    let submit = OpenApiRouter::new()
        .routes(routes!(post_job))
        .route_layer(time_limit(LONGEST_UPLOAD))
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
    /// Whose evidence it is, if the body is the archive itself.
    merchant_id: Option<String>,
}

/// Hand in a job.
///
/// A ZIP archive with `manifest.csv` (header `case_id,reference,files`; file names separated by `;`) and the files, as
/// the body or as the field `file` of a form; or JSON that names objects which are in the store already. When the
/// answer is 202, everything is durable. Whatever is refused leaves nothing behind.
#[utoipa::path(post, path = "/file-jobs", tag = "evidence", security(("bearer" = ["submit"])), params(UploadQuery), request_body(content(
    (JobRequest = "application/json"),
    (Vec<u8> = "application/zip"),
    (Vec<u8> = "multipart/form-data"),
)), responses(
    (status = 202, description = "taken in; its files will be attached", body = Accepted),
    (status = 413, description = "the archive is too large"),
    (status = 422, description = "an entry, a line of the manifest or a value was refused; it is named"),
))]
async fn post_job(
    State(evidence): State<Evidence>,
    request: Request,
) -> Result<(StatusCode, Json<Accepted>), Problem> {
    let intake = &evidence.0.intake;
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
    let largest = limits.max_archive.as_u64();
    let receiving = receive(request.into_body(), boundary, query.merchant_id, largest);
    let received = tokio::time::timeout(limits.timeout, receiving)
        .await
        .map_err(|_| {
            let seconds = limits.timeout.as_secs();
            Problem::new(
                &REQUEST_TIMEOUT,
                format!("The archive did not arrive within {seconds} s; nothing was kept."),
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

/// Which rows of a job to show.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct RowsQuery {
    /// Where the page of rows begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many rows the page holds.
    #[serde(default = "all_rows")]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 500)]
    limit: Limit,
}

fn all_rows() -> Limit {
    Limit::new(u64::from(Limit::MAX)).unwrap_or_default()
}

/// See a job: its counts, notifications, rows and artifacts.
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
    let pool = &evidence.0.pool;
    let list = list_id(ROWS, &id)?;
    let after: Option<i32> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let (job, row_count) = view::job(pool, id).await?.ok_or_else(not_found)?;
    let rows = view::rows(pool, id, after.unwrap_or(0), query.limit.rows_to_fetch()).await?;
    let page = Page::from_rows(rows, query.limit, &list, |row| row.row_number)?;
    Ok(Json(JobView {
        job,
        row_count,
        errors: view::errors(pool, id).await?,
        notifications: view::notifications(pool, id).await?,
        rows: page.items,
        next_cursor: page.next_cursor,
    }))
}

/// Which jobs to list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only those of this merchant.
    merchant_id: Option<String>,
    /// Only those that stand so.
    status: Option<JobStatus>,
    /// Where the page begins: `next_cursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor>,
    /// How many jobs the page holds.
    #[serde(default)]
    #[param(value_type = Option<u16>, minimum = 1, maximum = 500, default = 50)]
    limit: Limit,
}

/// List jobs, the newest first.
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
    let list = list_id(JOBS, &filter)?;
    let before: Option<Uuid> = query
        .cursor
        .map(|cursor| cursor.decode(&list))
        .transpose()?;
    let jobs = evidence
        .list(&filter, before, query.limit.rows_to_fetch())
        .await?;
    Ok(Json(Page::from_rows(jobs, query.limit, &list, |job| {
        job.file_job_id
    })?))
}

/// Whether to wait for the backoff.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct RetryQuery {
    /// True: retry also what is not due yet. Permanent failures and used-up attempts stay as they are.
    #[serde(default)]
    early: bool,
}

/// Run the retry scheduler for this job now.
#[utoipa::path(post, path = "/file-jobs/{id}/retry", tag = "evidence", security(("bearer" = ["operate"])), params(
    ("id" = Uuid, Path, description = "the job"), RetryQuery
), responses(
    (status = 202, description = "what is due is tried again", body = Retried),
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

fn not_found() -> Problem {
    Problem::new(&FILE_JOB_NOT_FOUND, "No file job has this id.")
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        match refused {
            Refused::Unknown => not_found(),
            Refused::Closed => Self::new(&FILE_JOB_CLOSED, detail),
            Refused::Engine(error) => error.into(),
        }
    }
}
