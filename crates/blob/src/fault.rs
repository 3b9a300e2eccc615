//! What an error says about the store: is it away, or did it answer?

use object_store::{Error, client::HttpError};

/// What went wrong, by what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The store can't be reached, or is too busy: it says nothing about the object.
    Away,
    /// The credentials are refused.
    Refused,
    /// The bucket, or the object, is not there.
    NotThere,
    /// Anything else.
    Other,
}

/// What this error of a store means.
#[must_use]
pub fn fault(error: &Error) -> Fault {
    match error {
        Error::NotFound { .. } => Fault::NotThere,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Fault::Refused,
        other => {
            let first: &(dyn std::error::Error + 'static) = other;
            let away = std::iter::successors(Some(first), |error| error.source())
                .any(|error| error.is::<HttpError>() || says_busy(&error.to_string()));
            if away { Fault::Away } else { Fault::Other }
        }
    }
}

/// The client's own type for an answer that it gave up on is private; its text begins like this.
fn says_busy(text: &str) -> bool {
    ["429", "502", "503", "504"]
        .iter()
        .any(|status| text.starts_with(&format!("Server returned non-2xx status code: {status}")))
}
