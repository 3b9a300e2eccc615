//! Periodic work: published rows are let go in time, and what is pending is measured.
//!
//! Requests and the wallet's inbox are never cleaned: a uuid that was forgotten could be paid a second time. An
//! exhausted row stays, for a dead letter that vanishes would be hidden.

use std::time::Duration;

use postrider_engine::{
    Error, journal,
    leader::{Periodic, run_periodic},
    readings::{Reading, many},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{counters, store};

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

/// Keeps the engine's journal small in a wallet's own database, where no other housekeeper comes by.
pub async fn clean_wallet(
    pool: PgPool,
    retention: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| prune(pool.clone(), retention);
    let periodic = Periodic::new("wallet.cleaning", EVERY);
    run_periodic(pool.clone(), periodic, stop, task).await
}

async fn prune(pool: PgPool, retention: Duration) -> Result<(), Error> {
    while journal::prune(&pool, retention, PIECE).await? >= u64::from(PIECE) {}
    Ok(())
}

/// What the gauges and the alerts look at: payments without an end.
pub async fn readings(pool: &PgPool) -> Result<Vec<Reading>, sqlx::Error> {
    let (payments, oldest) = store::pending(pool).await?;
    Ok(vec![
        Reading::new(counters::PENDING, many(payments)),
        Reading::new(counters::PENDING_AGE, oldest),
    ])
}
