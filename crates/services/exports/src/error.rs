//! The slice's errors: what an API call can fail with, and why an input has no file yet.

use std::time::Duration;

use postrider::{
    Error,
    failure::{Category, Failure},
    internal::{database_is_transient, is_conflict},
    ledger::LedgerError,
};
use postrider_blob::{ErrorKind, error_kind};
use postrider_web::{Problem, error_code::codes::INVALID_VALUE};

use crate::model::{InvalidRequest, JobStatus};
use codes::{
    EXPORT_FILE_GONE, EXPORT_FILE_NOT_FOUND, EXPORT_JOB_NOT_CANCELLABLE, EXPORT_JOB_NOT_FOUND,
    EXPORT_JOB_NOT_REDRIVABLE, EXPORT_STORE_UNAVAILABLE,
};

/// Error codes of requests about exports.
pub mod codes {
    postrider_web::error_codes! {
        /// No job has this id.
        EXPORT_JOB_NOT_FOUND = "export-job-not-found", NOT_FOUND, "No such job";
        /// The job has no such file, or not yet.
        EXPORT_FILE_NOT_FOUND = "export-file-not-found", NOT_FOUND, "No such file";
        /// The file was generated and has since been removed from the store.
        EXPORT_FILE_GONE = "export-file-gone", GONE, "The file is gone from the store";
        /// The file is registered, but the store doesn't respond.
        EXPORT_STORE_UNAVAILABLE = "export-store-unavailable", SERVICE_UNAVAILABLE, "The store is unavailable";
        /// The job is finished.
        EXPORT_JOB_NOT_CANCELLABLE = "export-job-not-cancellable", CONFLICT, "The job can no longer be cancelled";
        /// The job has not failed.
        EXPORT_JOB_NOT_REDRIVABLE = "export-job-not-redrivable", CONFLICT, "The job can't be redriven";
    }
}

/// `Retry-After` while the store is unavailable.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(10);

/// When an input is tried again after its database call failed.
const DATABASE_DELAY: Duration = Duration::from_secs(1);

/// When an input is tried again after a conflict between transactions.
const CONFLICT_DELAY: Duration = Duration::from_millis(20);

/// Why an operation on an export job failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The request is well-formed JSON but not a valid job.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// No such job.
    #[error("No job has this id.")]
    NotFound,
    /// The job has no finished input with this key.
    #[error(
        "The job has no finished input with this key; list its inputs with GET /jobs/{{jobId}}/inputs."
    )]
    NoFile,
    /// The file can't be read from the store.
    #[error("the store can't read the file")]
    Store(#[source] postrider_blob::Error),
    /// The job is finished.
    #[error("The job is {} and can't be cancelled.", .0.as_str())]
    NotCancellable(JobStatus),
    /// The job can't be redriven.
    #[error("The job is {} and can't be redriven: {reason}.", status.as_str())]
    NotRedrivable {
        /// The job's current status.
        status: JobStatus,
        /// Why that rules out a redrive.
        reason: &'static str,
    },
    /// The ledger refused, or the database failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for ExportError {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<Error> for ExportError {
    fn from(error: Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<ExportError> for Problem {
    fn from(error: ExportError) -> Self {
        let detail = error.to_string();
        match error {
            ExportError::Invalid(invalid) => invalid.into(),
            ExportError::NotFound => Self::new(&EXPORT_JOB_NOT_FOUND, detail),
            ExportError::NoFile => Self::new(&EXPORT_FILE_NOT_FOUND, detail),
            ExportError::Store(error) => store_problem(error),
            ExportError::NotCancellable(_) => Self::new(&EXPORT_JOB_NOT_CANCELLABLE, detail),
            ExportError::NotRedrivable { .. } => Self::new(&EXPORT_JOB_NOT_REDRIVABLE, detail),
            ExportError::Ledger(error) => error.into(),
        }
    }
}

impl From<InvalidRequest> for Problem {
    fn from(InvalidRequest(wrong): InvalidRequest) -> Self {
        let first = wrong
            .first()
            .map(|(field, problem)| format!("{field} {problem}"));
        let detail = format!("The job is invalid: {}.", first.unwrap_or_default());
        wrong.into_iter().fold(
            Self::new(&INVALID_VALUE, detail),
            |problem, (field, why)| problem.field(field, why),
        )
    }
}

fn store_problem(error: postrider_blob::Error) -> Problem {
    match error_kind(&error) {
        ErrorKind::NotFound => Problem::new(
            &EXPORT_FILE_GONE,
            "The file was generated and has since been removed from the store. Submit this input again: the new job generates it.",
        )
        .caused_by(error),
        ErrorKind::Unavailable => Problem::new(
            &EXPORT_STORE_UNAVAILABLE,
            "The store doesn't respond. Try again later.",
        )
        .retry_after(STORE_RETRY_AFTER)
        .caused_by(error),
        ErrorKind::AccessDenied | ErrorKind::Other => Problem::internal(error),
    }
}

/// Why an input has no file yet.
#[derive(Debug)]
pub(crate) enum FileError {
    /// It can't be worked on now, for reasons that aren't its own: no attempt is spent.
    Snooze(Duration),
    /// The source or the store is unavailable: the input waits for it and never becomes a dead letter for that alone.
    Unavailable(Failure),
    /// It failed.
    Failed(Failure),
}

impl FileError {
    /// Our own database failed.
    pub fn database(error: &Error) -> Self {
        if matches!(error, Error::Database(error) if is_conflict(error)) {
            return Self::Snooze(CONFLICT_DELAY);
        }
        if error.is_transient() || matches!(error, Error::Stopped(_)) {
            tracing::warn!(%error, "the database is unavailable; exports wait");
            return Self::Snooze(DATABASE_DELAY);
        }
        Self::Failed(Failure::from_error("DATABASE_ERROR", error))
    }

    pub fn no_data() -> Self {
        Self::Failed(Failure::with_category(
            "NO_DATA",
            Category::Data,
            "the source has no rows for this key",
        ))
    }

    pub fn source(error: &sqlx::Error) -> Self {
        if database_is_transient(error) {
            return Self::Unavailable(failure("SOURCE_UNAVAILABLE", Category::Network, error));
        }
        let class = error
            .as_database_error()
            .and_then(|error| error.code())
            .map(|code| code.chars().take(2).collect::<String>());
        Self::Failed(match class.as_deref() {
            // The rows themselves can't be computed.
            Some("22") => failure("SOURCE_DATA", Category::Data, error),
            Some("28") => failure("SOURCE_REFUSED", Category::Auth, error),
            _ => failure("SOURCE_ERROR", Category::System, error),
        })
    }

    pub fn store(error: &postrider_blob::Error) -> Self {
        match error_kind(error) {
            ErrorKind::Unavailable => {
                Self::Unavailable(failure("STORE_UNAVAILABLE", Category::Network, error))
            }
            ErrorKind::AccessDenied => {
                Self::Failed(failure("STORE_REFUSED", Category::Auth, error))
            }
            ErrorKind::NotFound => {
                Self::Failed(failure("STORE_NOT_THERE", Category::System, error))
            }
            ErrorKind::Other => Self::Failed(failure("STORE_ERROR", Category::System, error)),
        }
    }
}

fn failure(code: &str, category: Category, error: &(dyn std::error::Error + 'static)) -> Failure {
    let message = Failure::from_error(code, error);
    Failure::with_category(code, category, message.message())
}
