//! Periodic work: what is finished long enough is let go, and the age of what waits is measured.
//!
//! The ledger is not cleaned: a key that was forgotten could be used for a second order. An aborted order stays for the
//! whole retention, past its `expires_at` too: a dead letter that vanishes would be hidden.

use std::time::Duration;

use postrider_engine::{
    Error,
    leader::{Periodic, run_periodic},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{counters, store};

/// How often rows are cleaned away.
const EVERY: Duration = Duration::from_secs(60);

/// Rows per statement: short transactions.
const PIECE: i64 = 2_000;

/// How often the age of pending orders is measured.
const MEASURE: Duration = Duration::from_secs(5);

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

/// Keeps the gauge of pending age true, until the stop.
pub async fn measure(pool: PgPool, stop: CancellationToken) -> Result<(), Error> {
    loop {
        match store::pending_age(&pool).await {
            Ok(seconds) => counters::age(seconds),
            Err(error) => {
                tracing::debug!(%error, "the age of pending orders can't be measured now");
            }
        }
        if stop
            .run_until_cancelled(tokio::time::sleep(MEASURE))
            .await
            .is_none()
        {
            return Ok(());
        }
    }
}
