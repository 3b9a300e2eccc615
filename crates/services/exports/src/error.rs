//! Why an input has no file yet, and what that means for it.

use std::time::Duration;

use postrider::{
    error::{database_is_transient, is_conflict},
    failure::{Category, Failure},
};
use postrider_blob::{Fault, fault};

/// The database is away: look again soon.
const MOMENT: Duration = Duration::from_secs(1);

/// Nothing is wrong but the moment.
const AT_ONCE: Duration = Duration::from_millis(20);

/// Why an input has no file yet.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It can't be worked on now: nobody's fault, no attempt spent.
    Later(Duration),
    /// The source or the store is away: waits for it, and is never given up for that alone.
    Away(Failure),
    /// It failed.
    Failed(Failure),
}

impl Trouble {
    /// Our own database could not answer.
    pub fn unanswered(error: &postrider::Error) -> Self {
        if matches!(error, postrider::Error::Database(error) if is_conflict(error)) {
            // Two of us met over the same rows, and the server chose this one to give way.
            return Self::Later(AT_ONCE);
        }
        if error.is_transient() || matches!(error, postrider::Error::Stopped(_)) {
            tracing::warn!(%error, "the database is away: exports wait");
            return Self::Later(MOMENT);
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
            return Self::Away(failure("SOURCE_UNAVAILABLE", Category::Network, error));
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
        match fault(error) {
            Fault::Away => Self::Away(failure("STORE_UNAVAILABLE", Category::Network, error)),
            Fault::Refused => Self::Failed(failure("STORE_REFUSED", Category::Auth, error)),
            Fault::NotThere => Self::Failed(failure("STORE_NOT_THERE", Category::System, error)),
            Fault::Other => Self::Failed(failure("STORE_ERROR", Category::System, error)),
        }
    }
}

fn failure(code: &str, category: Category, error: &(dyn std::error::Error + 'static)) -> Failure {
    let told = Failure::from_error(code, error);
    Failure::with_category(code, category, told.message())
}
