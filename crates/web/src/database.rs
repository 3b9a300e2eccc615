//! Database errors as problems: they tell the client whether to retry, and nothing else.

use std::time::Duration;

use sqlx::error::DatabaseError;

use crate::error_code::codes;
use crate::problem::Problem;

const BUSY_WAIT: Duration = Duration::from_secs(1);
const RECONNECT_WAIT: Duration = Duration::from_secs(2);

/// Exhausted resources rarely come back by themselves within a moment.
const EXHAUSTED_WAIT: Duration = Duration::from_secs(10);

enum Kind {
    /// The database is healthy; this request found no free connection or lost a race.
    Busy,
    /// The database or the connection to it is down.
    Unavailable,
    /// The database has run out of this resource.
    Exhausted(&'static str),
    /// Our bug.
    Bug,
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        match classify(&error) {
            Kind::Busy => Problem::new(
                &codes::DATABASE_BUSY,
                "The database is busy; no partial change was made. Try again.",
            )
            .retry_after(BUSY_WAIT)
            .caused_by(error),
            Kind::Unavailable => Problem::new(
                &codes::DATABASE_UNAVAILABLE,
                "The database is unavailable; the server is reconnecting. Repeat the request with the same idempotency key.",
            )
            .retry_after(RECONNECT_WAIT)
            .caused_by(error),
            Kind::Exhausted(what) => Problem::new(
                &codes::DATABASE_EXHAUSTED,
                format!(
                    "The database has run out of {what}; no partial change was made. Its operator has to provide more. Then repeat the request with the same idempotency key."
                ),
            )
            .retry_after(EXHAUSTED_WAIT)
            .caused_by(error),
            Kind::Bug => Problem::internal(error),
        }
    }
}

fn classify(error: &sqlx::Error) -> Kind {
    match error {
        sqlx::Error::PoolTimedOut => Kind::Busy,
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Kind::Unavailable,
        sqlx::Error::Database(error) => classify_state(error.as_ref()),
        _ => Kind::Bug,
    }
}

fn classify_state(error: &dyn DatabaseError) -> Kind {
    match error.code().as_deref() {
        // serialization failure, deadlock, lock not available, statement cancelled by its timeout
        Some("40001" | "40P01" | "55P03" | "57014") => Kind::Busy,
        // shutdown, crash, starting up; a standby after a failover
        Some("57P01" | "57P02" | "57P03" | "25006") => Kind::Unavailable,
        // connection exceptions
        Some(state) if state.starts_with("08") => Kind::Unavailable,
        Some("53100") => Kind::Exhausted("disk space"),
        Some("53200") => Kind::Exhausted("memory"),
        Some("53300") => Kind::Exhausted("connections"),
        Some(state) if state.starts_with("53") => Kind::Exhausted("resources"),
        _ => Kind::Bug,
    }
}
