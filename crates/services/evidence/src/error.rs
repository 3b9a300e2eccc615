//! The slice's error type, and the problem document that each error becomes.

use std::time::Duration;

use postrider_web::{
    Problem,
    error_code::codes::{BODY_TOO_LARGE, INCOMPLETE_BODY, INVALID_VALUE},
};

use crate::model::InvalidField;
use codes::{ARCHIVE_REFUSED, EVIDENCE_STORE_UNAVAILABLE, FILE_JOB_CLOSED, FILE_JOB_NOT_FOUND};

/// Error codes of requests about evidence.
pub mod codes {
    postrider_web::error_codes! {
        /// No job has this id.
        FILE_JOB_NOT_FOUND = "file-job-not-found", NOT_FOUND, "No such file job";
        /// N2 was sent: the job no longer changes.
        FILE_JOB_CLOSED = "file-job-closed", CONFLICT, "The file job is closed";
        /// The archive, an entry of it or a line of its manifest is invalid.
        ARCHIVE_REFUSED = "archive-refused", UNPROCESSABLE_ENTITY, "The archive is invalid";
        /// The object store can't be written at the moment.
        EVIDENCE_STORE_UNAVAILABLE = "evidence-store-unavailable", SERVICE_UNAVAILABLE, "The store is unavailable";
    }
}

/// `Retry-After` while the store is unavailable.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Maximum length of an entry's name in an error.
const MAX_SHOWN: usize = 200;

/// Why an operation on a file job failed. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// No such job.
    #[error("No file job has this id.")]
    NotFound,
    /// The job is finished.
    #[error("The job is closed and no longer changes. Submit new evidence as a new job.")]
    Closed,
    /// A value of the request is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    /// An entry of the archive, or the archive as a whole, is invalid.
    #[error("{entry}: {problem}")]
    Archive {
        /// The entry; `archive` for the whole.
        entry: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The upload exceeds the limit.
    #[error("the archive is larger than {0} bytes")]
    TooLarge(u64),
    /// The upload did not arrive completely.
    #[error("the upload is incomplete")]
    Incomplete(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The object store failed.
    #[error("the store can't be written")]
    Store(#[from] postrider_blob::Error),
    /// The temporary file failed.
    #[error("the upload can't be written to a temporary file")]
    Disk(#[from] std::io::Error),
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] postrider::Error),
    /// A bug of ours.
    #[error("the upload could not be handled")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl EvidenceError {
    /// This entry has this problem.
    pub(crate) fn entry(entry: impl AsRef<str>, problem: impl Into<String>) -> Self {
        let clean = |c: char| if c.is_control() { '\u{FFFD}' } else { c };
        let entry = entry.as_ref().chars().take(MAX_SHOWN).map(clean).collect();
        Self::Archive {
            entry,
            problem: problem.into(),
        }
    }

    pub(crate) fn internal(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Internal(error.into())
    }

    /// Whether the job may have been stored all the same: the answer to a commit was lost.
    pub(crate) const fn may_be_stored(&self) -> bool {
        matches!(
            self,
            Self::Engine(postrider::Error::Database(sqlx::Error::Io(_)))
        )
    }
}

impl From<sqlx::Error> for EvidenceError {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl From<EvidenceError> for Problem {
    fn from(error: EvidenceError) -> Self {
        let detail = error.to_string();
        match error {
            EvidenceError::NotFound => Self::new(&FILE_JOB_NOT_FOUND, detail),
            EvidenceError::Closed => Self::new(&FILE_JOB_CLOSED, detail),
            EvidenceError::Invalid(InvalidField { field, problem }) => Self::new(
                &INVALID_VALUE,
                format!("The job is invalid: {field} {problem}."),
            )
            .field(field, problem),
            EvidenceError::Archive { entry, problem } => Self::new(
                &ARCHIVE_REFUSED,
                format!("The archive is invalid and nothing of it was stored: {entry} {problem}."),
            )
            .field(&entry, problem)
            .with("entry", entry),
            EvidenceError::TooLarge(limit) => Self::new(
                &BODY_TOO_LARGE,
                format!("The archive is larger than the limit of {limit} bytes."),
            )
            .with("limit", limit),
            EvidenceError::Incomplete(cause) => Self::new(
                &INCOMPLETE_BODY,
                "The connection ended before the archive was complete. Send it again.",
            )
            .caused_by(cause),
            EvidenceError::Store(cause) => Self::new(
                &EVIDENCE_STORE_UNAVAILABLE,
                "The files can't be stored at the moment; nothing was stored. Send the request again.",
            )
            .retry_after(STORE_RETRY_AFTER)
            .caused_by(cause),
            EvidenceError::Disk(cause) => Self::internal(cause),
            EvidenceError::Engine(error) => error.into(),
            EvidenceError::Internal(cause) => Self::internal(cause),
        }
    }
}
