//! Housekeeping under a leader lease: what is older than its retention is let go.

use std::time::Duration;

use postrider::{
    Error, attempts, inbox,
    leader::{Periodic, run_periodic},
};
use postrider_transports::{PostgresTransport, postgres::Retention as LogRetention};
use sqlx::PgPool;

use super::parts::Resources;
use crate::config::Retention;
use crate::services;

/// How often. Each run does a bounded amount and leaves the rest to the next piece.
const EVERY: Duration = Duration::from_secs(60);

/// Rows per statement: short transactions, so that vacuum and claims never wait for us.
const PIECE: u32 = 5_000;

/// The periodic task, until the stop.
pub(super) fn part(
    ground: &Resources,
    retention: Retention,
) -> impl Future<Output = Result<(), Error>> + Send + 'static {
    let (pool, transport) = (ground.pool.clone(), ground.log.clone());
    let task = move |_| tidy(pool.clone(), transport.clone(), retention);
    run_periodic(
        ground.pool.clone(),
        Periodic::new("housekeeping", EVERY),
        ground.stop.clone(),
        task,
    )
}

async fn tidy(
    pool: PgPool,
    transport: PostgresTransport,
    retention: Retention,
) -> Result<(), Error> {
    let attempts = by_pieces(|| attempts::prune(&pool, retention.attempts, PIECE)).await?;
    let letters = services::dead_letters(None)?;
    let archived = by_pieces(|| letters.prune_archive(&pool, retention.archive, PIECE)).await?;
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
        "let go what is old"
    );
    Ok(())
}

/// Again and again until nothing is left; how many went.
async fn by_pieces<F>(prune: impl Fn() -> F) -> Result<u64, Error>
where
    F: Future<Output = Result<u64, Error>>,
{
    let mut all = 0;
    loop {
        let pruned = prune().await?;
        all += pruned;
        if pruned < u64::from(PIECE) {
            return Ok(all);
        }
    }
}
