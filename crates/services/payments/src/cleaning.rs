//! Periodic work: published rows are let go in time, and what is pending is measured.
//!
//! Requests and the wallet's inbox are never cleaned: a uuid that was forgotten could be paid a second time. An
//! exhausted row stays, for a dead letter that vanishes would be hidden.

use std::time::Duration;

use postrider::{
    Error, attempts,
    dead_letter::DeadLetters,
    leader::{Periodic, run_periodic},
};
use postrider_inspect::gauges::{Gauge, gauge_value};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{WALLET_OUTBOX, counters, store};

/// How often rows are cleaned away.
const EVERY: Duration = Duration::from_secs(60);

/// Rows per statement: short transactions.
const PIECE: u32 = 2_000;

/// Cleans the orchestrator's outbox until the stop; one process at a time does it.
pub async fn clean(
    pool: PgPool,
    retention: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| clean_once(pool.clone(), retention);
    let periodic = Periodic::new("payments.cleaning", EVERY);
    run_periodic(pool.clone(), periodic, stop, task).await
}

/// Removes everything that may go by now.
pub async fn clean_once(pool: PgPool, retention: Duration) -> Result<(), Error> {
    let mut gone = 0;
    loop {
        let piece = store::clean(&pool, retention, i64::from(PIECE)).await?;
        gone += piece;
        if piece == 0 {
            tracing::debug!(gone, "published messages cleaned away");
            return Ok(());
        }
    }
}

/// How long a wallet's own database keeps what the engine has there.
#[derive(Debug, Clone, Copy)]
pub struct Kept {
    /// The journal of attempts.
    pub attempts: Duration,
    /// Archived dead letters.
    pub archive: Duration,
}

/// Keeps the engine's tables small in a wallet's own database, where no other housekeeper comes by.
pub async fn clean_wallet(pool: PgPool, kept: Kept, stop: CancellationToken) -> Result<(), Error> {
    let task = |_| prune(pool.clone(), kept);
    let periodic = Periodic::new("wallet.cleaning", EVERY);
    run_periodic(pool.clone(), periodic, stop, task).await
}

async fn prune(pool: PgPool, kept: Kept) -> Result<(), Error> {
    while attempts::prune(&pool, kept.attempts, PIECE).await? >= u64::from(PIECE) {}
    let letters = DeadLetters::new([&WALLET_OUTBOX])?;
    let archived = async || letters.prune_archive(&pool, kept.archive, PIECE).await;
    while archived().await? >= u64::from(PIECE) {}
    Ok(())
}

/// What the gauges and the alerts look at: payments without an end.
pub async fn readings(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let (payments, oldest) = store::pending(pool).await?;
    Ok(vec![
        Gauge::new(counters::PENDING, gauge_value(payments)),
        Gauge::new(counters::PENDING_AGE, oldest),
    ])
}
