//! States and values of file jobs.

mod code;
mod submission;
mod view;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use code::Code;
pub use submission::{
    FileRequest, InvalidField, JobRequest, MAX_FILES_PER_ROW, MAX_ROWS, MaxLength, NewFile, NewRow,
    RowRequest, Submission, check_text,
};
pub(crate) use submission::{media_type, path_problem};
pub use view::{ArtifactView, JobStatus, JobSummary, JobView, NotificationView, RowView};

/// Whether the file is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[sqlx(type_name = "text", rename_all = "UPPERCASE")]
pub enum AttachmentStatus {
    /// Not tried yet.
    Pending,
    /// Attached to its case.
    Attached,
    /// The last attempt failed.
    Failed,
}

/// The retry status of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RetryStatus {
    /// Never failed, or waits after its first failure.
    Pending,
    /// The scheduler has enqueued an event for it.
    RetryScheduled,
    /// A worker is retrying it.
    Retrying,
    /// A retry attached it.
    RetrySuccess,
    /// A retry failed; another one will follow.
    RetryFailed,
    /// It can't be retried, or its attempts are exhausted.
    PermanentFailed,
}

impl RetryStatus {
    /// The name as stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::RetryScheduled => "RETRY_SCHEDULED",
            Self::Retrying => "RETRYING",
            Self::RetrySuccess => "RETRY_SUCCESS",
            Self::RetryFailed => "RETRY_FAILED",
            Self::PermanentFailed => "PERMANENT_FAILED",
        }
    }
}

/// The status of a row, derived from its artifacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EvidenceStatus {
    /// An artifact has not been tried yet.
    Pending,
    /// All are attached.
    Completed,
    /// Some are attached.
    PartiallyFailed,
    /// None is attached.
    Failed,
}

/// The retry status after a failed attempt.
#[must_use]
pub const fn after_failure(code: Code, attempts: u32, max_retries: u32) -> RetryStatus {
    if !code.is_transient() || attempts > max_retries {
        RetryStatus::PermanentFailed
    } else if attempts > 1 {
        RetryStatus::RetryFailed
    } else {
        RetryStatus::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_failures_are_retried_twice_and_permanent_ones_never() {
        let after = |attempts| after_failure(Code::Unavailable, attempts, 2);
        assert_eq!(after(1), RetryStatus::Pending);
        assert_eq!(after(2), RetryStatus::RetryFailed);
        assert_eq!(after(3), RetryStatus::PermanentFailed);
        assert_eq!(
            after_failure(Code::CaseNotFound, 1, 2),
            RetryStatus::PermanentFailed
        );
        assert_eq!(
            after_failure(Code::SystemError, 1, 0),
            RetryStatus::PermanentFailed
        );
    }
}
