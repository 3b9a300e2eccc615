//! Connections that are tested when there is reason to.
//!
//! By itself sqlx asks the server before each use of a connection whether it is still there: a round trip more for every
//! statement. A connection that somebody used just now is there, or breaks under its next user as it would have anyway.

use std::time::Duration;

use sqlx::{Connection, postgres::PgPoolOptions};

/// What was used within this time is not asked about.
const TRUSTED: Duration = Duration::from_secs(1);

/// The options to make a pool with; the rest of them is sqlx's.
#[must_use]
pub fn options() -> PgPoolOptions {
    PgPoolOptions::new()
        .test_before_acquire(false)
        .before_acquire(|connection, meta| {
            Box::pin(async move { Ok(meta.idle_for < TRUSTED || connection.ping().await.is_ok()) })
        })
}
