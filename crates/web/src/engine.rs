//! Postrider's errors as problems. Here, because neither a service nor the library owns both types.

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
                format!("The value of `{field}` is invalid: {problem}."),
            )
            .field(field, problem),
            Error::Stopped(_) => Problem::new(
                &codes::SHUTTING_DOWN,
                "The server is shutting down and accepts no more work: repeat the request with the same idempotency key.",
            )
            .retry_after(RESTART_WAIT)
            .caused_by(error),
            // A schema mismatch, unreadable rows, a wrong lease: not the client's fault.
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
                "Another request with the same key is in progress: repeat this one to get its response.",
            )
            .retry_after(retry_after),
            // Only a bug in the program leads here.
            other @ (LedgerError::Unknown(_) | LedgerError::WrongState { .. }) => {
                Problem::internal(other)
            }
        }
    }
}

impl From<DigestError> for Problem {
    fn from(error: DigestError) -> Self {
        let detail = format!("The body is invalid: {error}.");
        match error {
            DigestError::Inexact { path, .. } => {
                Problem::new(&codes::INEXACT_NUMBER, detail).field(path, "can't be stored exactly")
            }
            DigestError::DuplicateKey { path } => {
                Problem::new(&codes::DUPLICATE_KEY, detail).field(path, "duplicate key")
            }
            DigestError::Json(error) => Problem::internal(error),
        }
    }
}
