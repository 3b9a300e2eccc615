//! What a client is told when the database fails: whether to try again, and nothing else.

use std::time::Duration;

use sqlx::error::DatabaseError;

use crate::error_code::codes;
use crate::problem::Problem;

const BUSY_WAIT: Duration = Duration::from_secs(1);
const RECONNECT_WAIT: Duration = Duration::from_secs(2);

/// What has run out rarely comes back by itself within a moment.
const ROOM_WAIT: Duration = Duration::from_secs(10);

enum Trouble {
    /// The database is well; this request found no room or lost a race.
    Busy,
    /// The database, or the way to it, is gone for now.
    Unavailable,
    /// The database is there and has run out of this.
    Exhausted(&'static str),
    /// A fault of ours.
    Fault,
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        match judge(&error) {
            Trouble::Busy => Problem::new(
                &codes::DATABASE_BUSY,
                "The database has no room for this request at the moment; nothing was changed that is not complete. Try again.",
            )
            .retry_after(BUSY_WAIT)
            .caused_by(error),
            Trouble::Unavailable => Problem::new(
                &codes::DATABASE_UNAVAILABLE,
                "The database cannot be reached; it is being tried again. Repeat the request with the same idempotency key.",
            )
            .retry_after(RECONNECT_WAIT)
            .caused_by(error),
            Trouble::Exhausted(what) => Problem::new(
                &codes::DATABASE_EXHAUSTED,
                format!(
                    "The database has run out of {what}; nothing was changed that is not complete. Whoever runs it must give it more. Repeat the request with the same idempotency key."
                ),
            )
            .retry_after(ROOM_WAIT)
            .caused_by(error),
            Trouble::Fault => Problem::internal(error),
        }
    }
}

fn judge(error: &sqlx::Error) -> Trouble {
    match error {
        sqlx::Error::PoolTimedOut => Trouble::Busy,
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Trouble::Unavailable,
        sqlx::Error::Database(error) => judge_state(error.as_ref()),
        _ => Trouble::Fault,
    }
}

fn judge_state(error: &dyn DatabaseError) -> Trouble {
    match error.code().as_deref() {
        // serialization failure, deadlock, lock not available, statement cancelled by its timeout
        Some("40001" | "40P01" | "55P03" | "57014") => Trouble::Busy,
        // shutdown, crash, starting up; a standby after a failover
        Some("57P01" | "57P02" | "57P03" | "25006") => Trouble::Unavailable,
        // connection exceptions
        Some(state) if state.starts_with("08") => Trouble::Unavailable,
        Some("53100") => Trouble::Exhausted("disk space"),
        Some("53200") => Trouble::Exhausted("memory"),
        Some("53300") => Trouble::Exhausted("connections"),
        Some(state) if state.starts_with("53") => Trouble::Exhausted("resources"),
        _ => Trouble::Fault,
    }
}
