//! States and values of file jobs; pure.

mod code;
mod submission;
mod view;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use code::Code;
pub use submission::{
    FileRequest, Invalid, JobRequest, MAX_FILES_PER_ROW, MAX_ROWS, NewFile, NewRow, RowRequest,
    Submission, Width, check_text,
};
pub(crate) use submission::{guess, wrong_with_path};
pub use view::{ArtifactView, JobStatus, JobSummary, JobView, NotificationView, RowView};

/// Has the case got the file?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[sqlx(type_name = "text", rename_all = "UPPERCASE")]
pub enum AttachmentStatus {
    /// Not tried yet.
    Pending,
    /// Yes.
    Attached,
    /// The last attempt failed.
    Failed,
}

/// Where an artifact stands with its retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RetryStatus {
    /// Never failed, or failed first and waits.
    Pending,
    /// The scheduler has put an event for it.
    RetryScheduled,
    /// A worker tries it again.
    Retrying,
    /// A retry attached it.
    RetrySuccess,
    /// A retry failed; another one is left.
    RetryFailed,
    /// It can't be retried, or no attempt is left.
    PermanentFailed,
}

impl RetryStatus {
    /// As it is stored and shown.
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

/// What a row's artifacts add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EvidenceStatus {
    /// Some artifact was not tried yet.
    Pending,
    /// All are attached.
    Completed,
    /// Some are attached.
    PartiallyFailed,
    /// None is attached.
    Failed,
}

/// Where an artifact stands after an attempt that failed: `PERMANENT_FAILED` if none is left, else waiting, in words
/// that tell a first failure from a retry's.
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
