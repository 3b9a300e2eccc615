//! Periodic work: the finalizer makes every job's state match its inputs, whatever a crash has left behind.

use std::time::Duration;

use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    gauges,
    model::Input,
    store::closing::{self, DeadInput},
    worker::{complete, failure_reason},
};

/// Open jobs per page.
const PAGE_SIZE: i64 = 500;

/// Runs the finalizer until `stop`, in one process at a time.
pub async fn finalizer(
    pool: PgPool,
    interval: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let periodic = Periodic::new("exports.finalizer", interval);
    let task = |_| finalize_once(pool.clone());
    run_periodic(pool.clone(), periodic, stop, task).await
}

/// Runs the finalizer once.
pub async fn finalize_once(pool: PgPool) -> Result<(), Error> {
    let mut after = Uuid::nil();
    loop {
        let jobs = closing::open_jobs(&pool, after, PAGE_SIZE).await?;
        let Some(last) = jobs.last() else { break };
        after = *last;
        for input in closing::jobs_with_dead_input(&pool, &jobs).await? {
            fail(&pool, input).await?;
        }
        complete(&pool, &jobs).await?;
    }
    let parked = closing::park_closed(&pool).await?;
    let released = closing::release_file_locks(&pool).await?;
    tracing::debug!(parked, released, "exports finalized");
    Ok(())
}

async fn fail(pool: &PgPool, dead: DeadInput) -> Result<(), sqlx::Error> {
    let input = Input {
        index_key: dead.index_key,
        effective_date: dead.effective_date,
        asof_indicator: dead.asof_indicator,
    };
    let message = dead.error_message.unwrap_or_default();
    let reason = failure_reason(&input, &dead.error_code, &message);
    let mut tx = pool.begin().await?;
    if closing::fail(&mut tx, dead.job_id, &reason).await? {
        gauges::job("failed", 1);
    }
    tx.commit().await
}
