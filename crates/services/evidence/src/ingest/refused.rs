//! Why a job was not taken in, and what its client is told.

use postrider_web::{
    Problem,
    error_code::codes::{BODY_TOO_LARGE, INCOMPLETE_BODY, INVALID_VALUE},
};

use crate::{
    codes::{ARCHIVE_REFUSED, EVIDENCE_STORE_UNAVAILABLE},
    model::Invalid,
};

/// Why nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// A value of the request.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// An entry of the archive, or the archive as a whole.
    #[error("{entry}: {problem}")]
    Archive {
        /// Which entry; `archive` for the whole.
        entry: String,
        /// What is wrong with it.
        problem: String,
    },
    /// More than is taken.
    #[error("the archive is larger than {0} bytes")]
    TooLarge(u64),
    /// It did not arrive completely.
    #[error("the upload broke off")]
    Incomplete(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The object store failed.
    #[error("the store can't be written")]
    Store(#[from] postrider_blob::Error),
    /// The temporary file failed.
    #[error("the upload can't be kept")]
    Disk(#[from] std::io::Error),
    /// The database failed, or refused.
    #[error(transparent)]
    Engine(#[from] postrider::Error),
    /// A fault of ours.
    #[error("the upload could not be handled")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Refused {
    /// This entry has this problem.
    pub(super) fn entry(entry: impl AsRef<str>, problem: impl Into<String>) -> Self {
        const SHOWN: usize = 200;
        let clean = |c: char| if c.is_control() { '\u{FFFD}' } else { c };
        let entry = entry.as_ref().chars().take(SHOWN).map(clean).collect();
        Self::Archive {
            entry,
            problem: problem.into(),
        }
    }

    pub(super) fn broken(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Broken(error.into())
    }

    /// Can the job be there all the same?
    pub(super) const fn may_be_stored(&self) -> bool {
        matches!(
            self,
            Self::Engine(postrider::Error::Database(sqlx::Error::Io(_)))
        )
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(Invalid { field, problem }) => Problem::new(
                &INVALID_VALUE,
                format!("The job was refused: {field} {problem}."),
            )
            .field(field, problem),
            Refused::Archive { entry, problem } => Problem::new(
                &ARCHIVE_REFUSED,
                format!("The archive was refused, and nothing of it was kept: {entry} {problem}."),
            )
            .field(&entry, problem)
            .with("entry", entry),
            Refused::TooLarge(limit) => Problem::new(
                &BODY_TOO_LARGE,
                format!("The archive is larger than {limit} bytes, the most that is taken here."),
            )
            .with("limit", limit),
            Refused::Incomplete(cause) => Problem::new(
                &INCOMPLETE_BODY,
                "The connection ended before the archive was complete: send it again.",
            )
            .caused_by(cause),
            Refused::Store(cause) => Problem::new(
                &EVIDENCE_STORE_UNAVAILABLE,
                "The files can't be stored at the moment; nothing was kept. Send the request again.",
            )
            .retry_after(std::time::Duration::from_secs(5))
            .caused_by(cause),
            Refused::Disk(cause) => Problem::internal(cause),
            Refused::Engine(error) => error.into(),
            Refused::Broken(cause) => Problem::internal(cause),
        }
    }
}
