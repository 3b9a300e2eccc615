//! Periodic clean-up of the library's tables in a wallet's own database, which no other housekeeping reaches.

use std::time::Duration;

use postrider::{
    Error,
    dead_letter::DeadLetters,
    internal::attempts,
    leader::{Periodic, run_periodic},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::WALLET_OUTBOX;

const INTERVAL: Duration = Duration::from_secs(60);

/// Rows per statement; keeps transactions short.
const CHUNK_SIZE: u32 = 2_000;

/// How long the wallet's own database keeps the library's records.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// The attempt log.
    pub attempts: Duration,
    /// Archived dead letters.
    pub archive: Duration,
}

/// Cleans until `stop` is cancelled; one process at a time does it.
pub async fn clean(
    pool: PgPool,
    retention: Retention,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| prune(pool.clone(), retention);
    let periodic = Periodic::new("wallet.cleaning", INTERVAL);
    run_periodic(pool.clone(), periodic, stop, task).await
}

async fn prune(pool: PgPool, retention: Retention) -> Result<(), Error> {
    let full = u64::from(CHUNK_SIZE);
    while attempts::prune(&pool, retention.attempts, CHUNK_SIZE).await? >= full {}
    let letters = DeadLetters::new([&WALLET_OUTBOX])?;
    let archived = async || {
        letters
            .prune_archive(&pool, retention.archive, CHUNK_SIZE)
            .await
    };
    while archived().await? >= full {}
    Ok(())
}
