//! Errors of the library.
//!
//! Three tiers: what the caller did (`Invalid`, `LostLease`), what the schema says (`Migrate`), and what the database
//! says (`Database`). Sources are kept, so that a log line can show the whole chain.

use crate::inbox::InboxError;
use crate::lease::LostLease;
use crate::ledger::LedgerError;
use crate::migrate::MigrateError;
use crate::transport::TransportError;

/// Result of a call to the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any failure of a call to the library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database rejected the call or could not be reached.
    #[error("the database call failed: {0}")]
    Database(#[from] sqlx::Error),

    /// The schema doesn't match this program.
    #[error(transparent)]
    Migrate(#[from] MigrateError),

    /// The lease is lost: nothing was changed, and the transaction must be rolled back.
    #[error(transparent)]
    LostLease(#[from] LostLease),

    /// The caller passed an invalid value.
    #[error("{field}: {problem}")]
    Invalid {
        /// Name of the argument.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },

    /// A stored row can't be read: something else wrote it.
    #[error("stored data of {what} can't be read: {problem}")]
    Unreadable {
        /// The table or column.
        what: &'static str,
        /// What was found.
        problem: String,
    },

    /// A test made a crash point fail; never in a release build.
    #[error(transparent)]
    Injected(#[from] postrider_crashpoint::Injected),

    /// The library panicked in this call, which is a bug. Items that the call held are found again when their leases
    /// expire.
    #[error("{0} panicked, which is a bug; nothing is lost, please report it")]
    Panicked(&'static str),

    /// The transport failed; see its error.
    #[error(transparent)]
    Transport(#[from] TransportError),

    /// The task that would have done this has stopped.
    #[error("{0} has stopped and accepts no more work")]
    Stopped(&'static str),
}

impl Error {
    /// Creates an [`Error::Invalid`].
    pub fn invalid(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            field,
            problem: problem.into(),
        }
    }

    /// Whether the same call may succeed if it is repeated a little later.
    ///
    /// True for lost connections, an exhausted pool, a server that starts or stops, deadlocks and serialization
    /// failures.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Database(error) => database_is_transient(error),
            Self::Migrate(MigrateError::Database(error)) => database_is_transient(error),
            Self::Injected(_) => true,
            Self::Transport(error) => error.is_transient(),
            Self::Migrate(_)
            | Self::LostLease(_)
            | Self::Invalid { .. }
            | Self::Unreadable { .. }
            | Self::Panicked(_)
            | Self::Stopped(_) => false,
        }
    }
}

/// Whether any error in this chain is a transient one of the database.
pub(crate) fn is_transient(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let own = error.downcast_ref::<Error>().map(Error::is_transient);
        let driver = || error.downcast_ref().map(database_is_transient);
        let busy = matches!(error.downcast_ref(), Some(LedgerError::Busy { .. }))
            || matches!(error.downcast_ref(), Some(InboxError::Busy));
        if busy || own.or_else(driver).unwrap_or(false) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether the database may accept the same call later.
#[must_use]
pub fn database_is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(inner) => inner.code().is_some_and(|code| is_transient_code(&code)),
        _ => false,
    }
}

/// Whether the server chose this transaction as the victim of a conflict: repeating it at once is right.
#[must_use]
pub fn is_conflict(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == "40P01" || code == "40001")
}

fn is_transient_code(code: &str) -> bool {
    // 08 connection, 40 conflict, 53 resources, 57P0x shutdown and start, 55P03 lock timeout.
    code.starts_with("08")
        || code.starts_with("40")
        || code.starts_with("53")
        || matches!(
            code,
            "57P01" | "57P02" | "57P03" | "57014" | "55P03" | "25006"
        )
}
