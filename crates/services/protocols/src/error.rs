//! The error type of the service, and the problem document that each error becomes.

use std::time::Duration;

use postrider::Error;
use postrider_blob::Error as StoreError;
use postrider_web::{Problem, error_code::codes::INVALID_VALUE};

use crate::model::{InvalidTransition, Status};
use codes::{
    DOCUMENT_STORE_UNAVAILABLE, PROTOCOL_NOT_FOUND, PROTOCOL_NOT_RETRYABLE, PROTOCOL_NOT_REVIEWABLE,
};

/// The maximum length of a reviewer's reason, in characters.
pub(crate) const MAX_REASON_CHARS: usize = 2_000;

/// What clients are told to wait when the object store fails.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Error codes of requests about protocols.
pub mod codes {
    postrider_web::error_codes! {
        /// No protocol has this id.
        PROTOCOL_NOT_FOUND = "protocol-not-found", NOT_FOUND, "No such protocol";
        /// The protocol has not failed.
        PROTOCOL_NOT_RETRYABLE = "protocol-not-retryable", BAD_REQUEST, "The protocol cannot be retried";
        /// The protocol is not pending review.
        PROTOCOL_NOT_REVIEWABLE = "protocol-not-reviewable", CONFLICT, "The protocol cannot be reviewed";
        /// The object store is unavailable.
        DOCUMENT_STORE_UNAVAILABLE = "document-store-unavailable", SERVICE_UNAVAILABLE, "The document cannot be stored now";
    }
}

/// Why an operation on a protocol failed.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// A field of an upload is invalid.
    #[error("{field} {problem}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such protocol.
    #[error("no protocol has this id")]
    NotFound,
    /// Only a failed protocol can be retried.
    #[error(
        "the protocol is {0} and can't be retried: only one that is extraction_failed, grounding_failed or dead_letter can"
    )]
    NotRetryable(Status),
    /// Only a protocol that is pending review can be reviewed.
    #[error("the protocol is {0} and can't be reviewed: only one that is pending_review can")]
    NotReviewable(Status),
    /// A rejection needs a reason.
    #[error("a rejection needs a reason")]
    MissingReason,
    /// The reason is too long.
    #[error("a reason has at most {MAX_REASON_CHARS} characters")]
    ReasonTooLong,
    /// The state diagram has no such transition.
    #[error(transparent)]
    Transition(#[from] InvalidTransition),
    /// The object store failed.
    #[error("the object store failed")]
    Store(#[from] StoreError),
    /// The library or the database failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<sqlx::Error> for ProtocolError {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl From<ProtocolError> for Problem {
    fn from(error: ProtocolError) -> Self {
        let detail = error.to_string();
        match error {
            ProtocolError::Invalid { field, problem } => Self::new(
                &INVALID_VALUE,
                format!("The protocol is invalid: {detail}."),
            )
            .field(field, problem),
            ProtocolError::NotFound => Self::new(&PROTOCOL_NOT_FOUND, "No protocol has this id."),
            ProtocolError::NotRetryable(status) => {
                Self::new(&PROTOCOL_NOT_RETRYABLE, detail).with("status_now", status.as_str())
            }
            ProtocolError::NotReviewable(status) => {
                Self::new(&PROTOCOL_NOT_REVIEWABLE, detail).with("status_now", status.as_str())
            }
            ProtocolError::MissingReason | ProtocolError::ReasonTooLong => {
                Self::new(&INVALID_VALUE, format!("The review is invalid: {detail}."))
                    .field("/reason", detail)
            }
            ProtocolError::Transition(error) => Self::internal(error),
            ProtocolError::Store(error) => Self::new(
                &DOCUMENT_STORE_UNAVAILABLE,
                "The object store is unavailable. Try again later.",
            )
            .retry_after(STORE_RETRY_AFTER)
            .caused_by(error),
            ProtocolError::Engine(error) => error.into(),
        }
    }
}
