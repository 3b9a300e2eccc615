//! What a client is told when the engine refuses or fails. It stands here because neither a slice
//! nor the engine owns both types.

use std::time::Duration;

use postrider::Error;
use postrider::digest::DigestError;
use postrider::ledger::LedgerError;

use crate::error_code::codes;
use crate::problem::Problem;

const RESTART_WAIT: Duration = Duration::from_secs(5);

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Database(error) => error.into(),
            Error::Invalid { field, problem } => Problem::new(
                &codes::INVALID_VALUE,
                format!("The value of `{field}` was refused: {problem}."),
            )
            .field(field, problem),
            Error::Stopped(_) => Problem::new(
                &codes::SHUTTING_DOWN,
                "The server is stopping and takes no more work: repeat the request with the same idempotency key.",
            )
            .retry_after(RESTART_WAIT)
            .caused_by(error),
            // A schema that does not fit, unreadable rows, a lease that a handler had no business
            // with: nothing that a client did.
            other => Problem::internal(other),
        }
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Other(error) => error.into(),
            LedgerError::Busy { retry_after } => Problem::new(
                &codes::REQUEST_IN_PROGRESS,
                "Another request with the same key is being accepted: repeat this one to get its answer.",
            )
            .retry_after(retry_after),
            // Only a program that finishes what it never accepted gets here.
            other @ (LedgerError::Unknown(_) | LedgerError::WrongState { .. }) => {
                Problem::internal(other)
            }
        }
    }
}

impl From<DigestError> for Problem {
    fn from(error: DigestError) -> Self {
        let detail = format!("The body was refused: {error}.");
        match error {
            DigestError::Inexact { path, .. } => {
                Problem::new(&codes::INEXACT_NUMBER, detail).field(path, "cannot be kept exactly")
            }
            DigestError::DuplicateKey { path } => {
                Problem::new(&codes::DUPLICATE_KEY, detail).field(path, "duplicate key")
            }
            DigestError::Json(error) => Problem::internal(error),
        }
    }
}
