//! What changes something: submit, cancel, redrive.

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

use super::{Exports, answer};
use crate::{
    accept::{Answer, SCOPE},
    codes::{EXPORT_JOB_NOT_CANCELLABLE, EXPORT_JOB_NOT_FOUND, EXPORT_JOB_NOT_REDRIVABLE},
    model::{Accepted, Invalid, JobRequest, JobView, Submission},
    operate::Refused,
    store,
};

/// The header that makes a request one, however often it is sent.
const KEY: &str = "Idempotency-Key";

/// Submit a job.
///
/// One file is made for each input, or found if it is there already. All inputs are accepted in one transaction, or none.
/// With an `Idempotency-Key` the same request again is answered with the job that the first one made.
#[utoipa::path(post, path = "/jobs", tag = "exports", security(("bearer" = ["submit"])), request_body = JobRequest, params(
    ("Idempotency-Key" = Option<String>, Header, description = "one key is one request")
), responses(
    (status = 202, description = "accepted; its files will be made", body = Accepted),
    (status = 200, description = "accepted before under this key", body = Accepted),
    (status = 409, description = "the key was used for another request"),
))]
pub(super) async fn post_job(
    State(exports): State<Exports>,
    headers: HeaderMap,
    Json(request): Json<JobRequest>,
) -> Result<Response, Problem> {
    let key = idempotency_key(&headers)?;
    let submission = Submission::try_from(request).map_err(invalid)?;
    Ok(match exports.accept(&submission, key.as_ref()).await? {
        Answer::Accepted(job) => (StatusCode::ACCEPTED, Json(job)).into_response(),
        Answer::Replay(job) => (StatusCode::OK, Json(job)).into_response(),
        Answer::Mismatch => Problem::new(
            &IDEMPOTENCY_MISMATCH,
            "Other inputs were submitted under this Idempotency-Key: take a new key for a new job.",
        )
        .field(KEY, "used for another request")
        .into_response(),
    })
}

/// Cancel a job.
///
/// Inputs that are being worked on finish and keep their result; nothing else is begun.
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
/// Its inputs in the DLQ begin anew with fresh attempts, what was not begun goes on, what is finished is not done again.
#[utoipa::path(post, path = "/jobs/{jobId}/redrive", tag = "exports", security(("bearer" = ["operate"])), params(
    ("jobId" = String, Path, description = "the job's id")
), responses(
    (status = 200, description = "it runs again", body = JobView),
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

async fn view(exports: &Exports, job_key: &str) -> Result<Response, Problem> {
    let job = exports.find(job_key).await?;
    let progress = store::progress(&exports.0.pool, job).await?;
    Ok(answer::job(exports.0.pool.clone(), job, progress))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<Key>, Problem> {
    let refused = |problem: &str| {
        Problem::new(
            &INVALID_VALUE,
            format!("The header {KEY} was refused: {problem}."),
        )
        .field(KEY, problem)
    };
    let mut given = headers.get_all(KEY).iter();
    let (first, second) = (given.next(), given.next());
    if second.is_some() {
        return Err(refused("is given more than once"));
    }
    let Some(value) = first else { return Ok(None) };
    let text = value
        .to_str()
        .map_err(|_| refused("has characters other than plain ASCII"))?;
    Key::new(SCOPE, text)
        .map(Some)
        .map_err(|error| refused(&error.to_string()))
}

fn invalid(Invalid(wrong): Invalid) -> Problem {
    let first = wrong
        .first()
        .map(|(place, problem)| format!("{place} {problem}"));
    let problem = Problem::new(
        &INVALID_VALUE,
        format!("The job was refused: {}.", first.unwrap_or_default()),
    );
    wrong
        .into_iter()
        .fold(problem, |problem, (place, why)| problem.field(place, why))
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        match refused {
            Refused::Unknown => Self::new(&EXPORT_JOB_NOT_FOUND, "No job has this id."),
            Refused::NotCancellable(_) => Self::new(&EXPORT_JOB_NOT_CANCELLABLE, detail),
            Refused::NotRedrivable { .. } => Self::new(&EXPORT_JOB_NOT_REDRIVABLE, detail),
            Refused::Engine(error) => error.into(),
        }
    }
}
