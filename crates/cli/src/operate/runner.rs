//! Goes on with what operators asked to be done to many dead letters. Any number of processes may: each piece is one
//! transaction that only one of them gets, and the pace is kept by the database.

use std::time::Duration;

use postrider::{
    Result,
    dead_letter::{DeadLetters, Step},
    wake::Waker,
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::services;

/// How often somebody looks whether there is anything to do; and the longest that a slow order is left alone.
const LOOK: Duration = Duration::from_millis(500);

const WAITS: &str = "an operation over dead letters can't go on now";

/// Pieces of one order before the next has its turn.
const PIECES: u32 = 10;

/// Works until the stop, over this database and the wallet's own if there is one.
pub async fn run(pool: PgPool, wallet: Option<PgPool>, stop: CancellationToken) -> Result<()> {
    let letters = services::dead_letters(wallet)?;
    let waker = Waker::new(pool.clone());
    loop {
        let wait = match round(&pool, &letters, &waker).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::warn!(%error, "{WAITS}");
                LOOK
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

/// Gives each order its turn; says how long to wait for the next.
async fn round(pool: &PgPool, letters: &DeadLetters, waker: &Waker) -> Result<Duration> {
    let mut wait = LOOK;
    for id in letters.open_operations(pool).await? {
        let mut changed = false;
        for _ in 0..PIECES {
            match letters.step(pool, id).await {
                Ok(Step::Done) => (changed, wait) = (true, Duration::ZERO),
                Ok(Step::Early(early)) => {
                    wait = wait.min(early);
                    break;
                }
                Ok(Step::Busy) => break,
                Ok(Step::Over) => {
                    changed = true;
                    break;
                }
                // Another one may be about a database that is there.
                Err(error) => {
                    tracing::warn!(%error, operation = id, "{WAITS}");
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
