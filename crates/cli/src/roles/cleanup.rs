//! Retention under a leader lease: deletes what is older than its retention period.

use std::time::Duration;

use postrider::{
    Error, inbox,
    internal::attempts,
    leader::{Periodic, run_periodic},
};
use postrider_transports::{PostgresTransport, postgres::Retention as LogRetention};
use sqlx::PgPool;

use super::tasks::Resources;
use crate::config::Retention;
use crate::services;

const INTERVAL: Duration = Duration::from_secs(60);

/// Rows per statement: transactions stay short, so vacuum and claims never wait for us.
const BATCH_SIZE: u32 = 5_000;

/// The periodic task, until the stop.
pub(super) fn task(
    resources: &Resources,
    retention: Retention,
) -> impl Future<Output = Result<(), Error>> + Send + 'static {
    let (pool, transport) = (resources.pool.clone(), resources.log.clone());
    let task = move |_| delete_expired(pool.clone(), transport.clone(), retention);
    run_periodic(
        resources.pool.clone(),
        Periodic::new("housekeeping", INTERVAL),
        resources.stop.clone(),
        task,
    )
}

async fn delete_expired(
    pool: PgPool,
    transport: PostgresTransport,
    retention: Retention,
) -> Result<(), Error> {
    let attempts = in_batches(|| attempts::prune(&pool, retention.attempts, BATCH_SIZE)).await?;
    let letters = services::dead_letters(None)?;
    let archived =
        in_batches(|| letters.prune_archive(&pool, retention.archive, BATCH_SIZE)).await?;
    let inbox = inbox::forget(&pool, retention.inbox).await?;
    let log = LogRetention {
        keep: retention.messages,
        ..LogRetention::default()
    };
    let kept = transport.retain(log).await?;
    tracing::debug!(
        attempts,
        archived,
        inbox,
        segments = kept.dropped.len(),
        "deleted data past its retention"
    );
    Ok(())
}

/// Repeats a batch until nothing is left; returns how many rows were deleted.
async fn in_batches<F>(prune: impl Fn() -> F) -> Result<u64, Error>
where
    F: Future<Output = Result<u64, Error>>,
{
    let mut deleted = 0;
    loop {
        let batch = prune().await?;
        deleted += batch;
        if batch < u64::from(BATCH_SIZE) {
            return Ok(deleted);
        }
    }
}
