//! Periodic clean-up of finished orders.
//!
//! The ledger is never cleaned: a forgotten key could be used for a second order. A sent order is deleted once its
//! `expires_at` has passed or its retention is over, whichever comes first. An aborted order stays for the whole
//! retention, even past its `expires_at`: most aborted orders have expired, and a dead letter that vanished within a
//! minute would never be seen.

use std::time::Duration;

use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::store;

const INTERVAL: Duration = Duration::from_secs(60);

/// Rows per statement; keeps transactions short.
const CHUNK_SIZE: i64 = 2_000;

/// Cleans until `stop` is cancelled; one process at a time does it.
pub async fn clean(
    pool: PgPool,
    retention: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| clean_once(pool.clone(), retention);
    run_periodic(
        pool.clone(),
        Periodic::new("orders.cleaning", INTERVAL),
        stop,
        task,
    )
    .await
}

/// Deletes every row whose retention is over.
pub async fn clean_once(pool: PgPool, retention: Duration) -> Result<(), Error> {
    let mut deleted = 0;
    loop {
        let chunk = store::clean(&pool, retention, CHUNK_SIZE).await?;
        deleted += chunk;
        if chunk == 0 {
            tracing::debug!(deleted, "finished orders cleaned up");
            return Ok(());
        }
    }
}
