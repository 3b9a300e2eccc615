//! Classifies a store's errors: is the store unavailable, or did it answer?

use object_store::{Error, client::HttpError};

/// What kind of error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The store is unreachable or too busy. Says nothing about the object.
    Unavailable,
    /// The credentials are rejected.
    AccessDenied,
    /// The bucket or the object doesn't exist.
    NotFound,
    /// Anything else.
    Other,
}

/// The kind of a store's error.
#[must_use]
pub fn error_kind(error: &Error) -> ErrorKind {
    match error {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => ErrorKind::AccessDenied,
        other => {
            let first: &(dyn std::error::Error + 'static) = other;
            let unavailable = std::iter::successors(Some(first), |error| error.source())
                .any(|error| error.is::<HttpError>() || is_busy(&error.to_string()));
            if unavailable {
                ErrorKind::Unavailable
            } else {
                ErrorKind::Other
            }
        }
    }
}

/// The client's error type for a response after its last retry is private; its text starts like this.
fn is_busy(text: &str) -> bool {
    ["429", "502", "503", "504"]
        .iter()
        .any(|status| text.starts_with(&format!("Server returned non-2xx status code: {status}")))
}
