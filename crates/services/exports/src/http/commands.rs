//! Endpoints that change something: submit, cancel, redrive.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use postrider::{lease::Operator, ledger::Key};
use postrider_web::{
    Caller, Json, Path, Problem,
    error_code::codes::{IDEMPOTENCY_MISMATCH, INVALID_VALUE},
};

use super::queries::view;
use crate::{
    ExportError, Exports,
    model::{Accepted, JobRequest, JobView, Submission},
    service::{AcceptOutcome, SCOPE},
};

const KEY_HEADER: &str = "Idempotency-Key";

/// Submit a job.
///
/// One file is generated for each input, or reused if it exists. All inputs are accepted in one transaction, or none.
/// With an `Idempotency-Key`, repeating the request returns the job that the first one created.
#[utoipa::path(post, path = "/jobs", tag = "exports", security(("bearer" = ["submit"])), request_body = JobRequest, params(
    ("Idempotency-Key" = Option<String>, Header, description = "makes the request safe to repeat")
), responses(
    (status = 202, description = "accepted; its files will be generated", body = Accepted),
    (status = 200, description = "accepted before under this key", body = Accepted),
    (status = 409, description = "the key was used for another request"),
))]
pub(super) async fn post_job(
    State(exports): State<Exports>,
    headers: HeaderMap,
    Json(request): Json<JobRequest>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let submission = Submission::try_from(request).map_err(ExportError::from)?;
    Ok(match exports.accept(&submission, key.as_ref()).await? {
        AcceptOutcome::Accepted(job) => (StatusCode::ACCEPTED, Json(job)).into_response(),
        AcceptOutcome::Replay(job) => (StatusCode::OK, Json(job)).into_response(),
        AcceptOutcome::Mismatch => Problem::new(
            &IDEMPOTENCY_MISMATCH,
            "This Idempotency-Key was used for a job with other inputs. Use a new key for a new job.",
        )
        .field(KEY_HEADER, "was used for another request")
        .into_response(),
    })
}

/// Cancel a job.
///
/// Running inputs finish and keep their result; nothing else starts.
#[utoipa::path(post, path = "/jobs/{jobId}/cancel", tag = "exports", security(("bearer" = ["submit"])), params(
    ("jobId" = String, Path, description = "the job's id")
), responses(
    (status = 200, description = "cancelled", body = JobView),
    (status = 404, description = "no such job"),
    (status = 409, description = "the job is completed or failed"),
))]
pub(super) async fn cancel_job(
    State(exports): State<Exports>,
    caller: Caller,
    Path(job_key): Path<String>,
) -> Result<Response, Problem> {
    let operator = Operator::new(caller.name());
    exports.cancel(&job_key, &operator).await?;
    view(&exports, &job_key).await
}

/// Redrive a failed job.
///
/// Its inputs in the DLQ get fresh attempts, parked inputs resume, finished ones are kept.
#[utoipa::path(post, path = "/jobs/{jobId}/redrive", tag = "exports", security(("bearer" = ["operate"])), params(
    ("jobId" = String, Path, description = "the job's id")
), responses(
    (status = 200, description = "the job is running again", body = JobView),
    (status = 404, description = "no such job"),
    (status = 409, description = "the job has not failed, was cancelled, or its failed inputs were archived and nothing else waits"),
))]
pub(super) async fn redrive_job(
    State(exports): State<Exports>,
    caller: Caller,
    Path(job_key): Path<String>,
) -> Result<Response, Problem> {
    let operator = Operator::new(caller.name());
    exports.redrive(&job_key, &operator).await?;
    view(&exports, &job_key).await
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<Key>, Problem> {
    let invalid = |problem: &str| {
        Problem::new(
            &INVALID_VALUE,
            format!("The header {KEY_HEADER} is invalid: it {problem}."),
        )
        .field(KEY_HEADER, problem)
    };
    let mut given = headers.get_all(KEY_HEADER).iter();
    let (first, second) = (given.next(), given.next());
    if second.is_some() {
        return Err(invalid("is present more than once"));
    }
    let Some(value) = first else { return Ok(None) };
    let text = value
        .to_str()
        .map_err(|_| invalid("contains characters other than ASCII"))?;
    Key::new(SCOPE, text)
        .map(Some)
        .map_err(|error| invalid(&error.to_string()))
}
