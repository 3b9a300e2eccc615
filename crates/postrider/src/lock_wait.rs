//! How long a statement may wait for another transaction's lock.
//!
//! Set with `set_config('lock_timeout', …, true)` inside the statement that may wait: no extra round trip, and no
//! session state that a pooler could leak.

use std::time::Duration;

/// The value for a timeout setting: at least a millisecond, because zero means no timeout.
pub(crate) fn setting(timeout: Duration) -> String {
    let millis = timeout.as_millis().clamp(1, i32::MAX.unsigned_abs().into());
    format!("{millis}ms")
}

/// Whether the statement gave up waiting.
pub(crate) fn ran_out(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == "55P03")
}
