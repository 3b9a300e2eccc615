//! Periodic clean-up of published messages.
//!
//! Requests and the wallet's inbox are never cleaned: a forgotten uuid could be paid a second time. An exhausted row stays
//! too, because a dead letter must not vanish.

use std::time::Duration;

use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::store;

const INTERVAL: Duration = Duration::from_secs(60);

/// Rows per statement; keeps transactions short.
const CHUNK_SIZE: i64 = 2_000;

/// Cleans the outbox until `stop` is cancelled; one process at a time does it.
pub async fn clean(
    pool: PgPool,
    retention: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| clean_once(pool.clone(), retention);
    let periodic = Periodic::new("payments.cleaning", INTERVAL);
    run_periodic(pool.clone(), periodic, stop, task).await
}

/// Deletes every published row whose retention is over.
pub async fn clean_once(pool: PgPool, retention: Duration) -> Result<(), Error> {
    let mut deleted = 0;
    loop {
        let chunk = store::clean(&pool, retention, CHUNK_SIZE).await?;
        deleted += chunk;
        if chunk == 0 {
            tracing::debug!(deleted, "published messages cleaned up");
            return Ok(());
        }
    }
}
