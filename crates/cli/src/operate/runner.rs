//! Runs redrive and archive operations. Any number of processes may: each batch is one transaction that only one of them
//! gets, and the database enforces the rate.

use std::time::Duration;

use postrider::{
    Result,
    dead_letter::{DeadLetters, Step},
    wake::Waker,
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::services;

/// Poll interval, and the longest pause of a slow operation.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

const PAUSED: &str = "an operation on dead letters paused; retrying";

/// Batches of one operation before the next has its turn.
const BATCHES_PER_TURN: u32 = 10;

/// Runs until the stop, on this database and the wallet's own, if it has one.
pub async fn run(pool: PgPool, wallet: Option<PgPool>, stop: CancellationToken) -> Result<()> {
    let letters = services::dead_letters(wallet)?;
    let waker = Waker::new(pool.clone());
    loop {
        let wait = match round(&pool, &letters, &waker).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "{PAUSED}");
                POLL_INTERVAL
            }
        };
        if stop
            .run_until_cancelled(tokio::time::sleep(wait))
            .await
            .is_none()
        {
            return Ok(());
        }
    }
}

/// Gives each operation its turn; returns the pause before the next round.
async fn round(pool: &PgPool, letters: &DeadLetters, waker: &Waker) -> Result<Duration> {
    let mut wait = POLL_INTERVAL;
    for id in letters.open_operations(pool).await? {
        let mut changed = false;
        for _ in 0..BATCHES_PER_TURN {
            match letters.step(pool, id).await {
                Ok(Step::Progressed) => (changed, wait) = (true, Duration::ZERO),
                Ok(Step::Wait(early)) => {
                    wait = wait.min(early);
                    break;
                }
                Ok(Step::Busy) => break,
                Ok(Step::Finished) => {
                    changed = true;
                    break;
                }
                // Other operations may be on a database that is available.
                Err(error) => {
                    tracing::warn!(%error, operation = id, "{PAUSED}");
                    break;
                }
            }
        }
        if changed {
            services::work_tables().for_each(|table| waker.wake(table));
        }
    }
    Ok(wait)
}
