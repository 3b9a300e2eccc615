//! Periodic work: what is finished long enough is let go, and the age of what waits is measured.
//!
//! The ledger is not cleaned: a key that was forgotten could be used for a second order. A sent order goes when its
//! `expires_at` has passed or its retention is over, whichever comes first. An aborted one stays for the whole retention,
//! past its `expires_at` too: most die of just that, and a dead letter that vanishes within the minute would be hidden.

use std::time::Duration;

use postrider::{
    Error,
    gauges::Gauge,
    leader::{Periodic, run_periodic},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{counters, store};

/// How often rows are cleaned away.
const EVERY: Duration = Duration::from_secs(60);

/// Rows per statement: short transactions.
const PIECE: i64 = 2_000;

/// Cleans until the stop; one process at a time does it.
pub async fn clean(
    pool: PgPool,
    retention: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| clean_once(pool.clone(), retention);
    run_periodic(
        pool.clone(),
        Periodic::new("orders.cleaning", EVERY),
        stop,
        task,
    )
    .await
}

/// Removes everything that may go by now.
pub async fn clean_once(pool: PgPool, retention: Duration) -> Result<(), Error> {
    let mut gone = 0;
    loop {
        let piece = store::clean(&pool, retention, PIECE).await?;
        gone += piece;
        if piece == 0 {
            tracing::debug!(gone, "finished orders cleaned away");
            return Ok(());
        }
    }
}

/// What the gauges and the alerts look at: the age of pending orders.
pub async fn readings(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let age = store::pending_age(pool).await?;
    Ok(vec![Gauge::of(
        counters::AGE,
        "table",
        counters::TABLE,
        age,
    )])
}
