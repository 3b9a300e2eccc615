//! Periodic work: old lines of the journal and files that no job knows are let go.
//!
//! An upload writes its files before its job commits. A crash in between leaves files that nobody will ever name; they
//! are found by the job id in their key, and only once they are old enough that no upload can still be under way.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::TryStreamExt;
use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};
use postrider_blob::{Key, Store};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{ingest::PREFIX, store::journal, store::submit};

/// How often the store is searched for files of no job.
const SEARCH: Duration = Duration::from_secs(3_600);

/// Jobs per question to the database.
const PIECE: usize = 500;

/// How often the journal of attempts is looked through.
const PRUNE: Duration = Duration::from_secs(600);

/// Lines per statement: short transactions.
const LINES: u32 = 5_000;

/// No line goes sooner: the doctor compares counters with the journal a week back.
const LEAST: Duration = Duration::from_secs(8 * 24 * 3_600);

/// Lets go of the journal of jobs that are closed for this long, until the stop; one process at a time does it.
pub async fn prune(pool: PgPool, keep: Duration, stop: CancellationToken) -> Result<(), Error> {
    let periodic = Periodic::new("evidence.journal", PRUNE);
    run_periodic(pool.clone(), periodic, stop, |_| {
        let pool = pool.clone();
        async move { prune_once(&pool, keep).await.map(drop) }
    })
    .await
}

/// Removes every line of a job that is closed for this long (eight days at least); says how many.
pub async fn prune_once(pool: &PgPool, keep: Duration) -> Result<u64, sqlx::Error> {
    let mut gone = 0;
    loop {
        let piece = journal::prune(pool, keep.max(LEAST), LINES).await?;
        gone += piece;
        if piece < u64::from(LINES) {
            tracing::debug!(gone, "old attempts were let go");
            return Ok(gone);
        }
    }
}

/// Lets go of orphaned files, until the stop; one process at a time does it.
pub async fn sweep(
    pool: PgPool,
    store: Store,
    after: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let periodic = Periodic::new("evidence.orphans", SEARCH);
    run_periodic(pool.clone(), periodic, stop, |_| {
        let (pool, store) = (pool.clone(), store.clone());
        async move { sweep_once(&pool, &store, after).await.map(drop) }
    })
    .await
}

/// Why a sweep ended early.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The store failed.
    #[error("the store can't be searched")]
    Store(#[from] postrider_blob::Error),
    /// The database failed.
    #[error("the database can't be asked")]
    Database(#[from] sqlx::Error),
}

/// Removes files that are older than `after` and belong to no job; says how many.
pub async fn sweep_once(
    pool: &PgPool,
    store: &Store,
    after: Duration,
) -> Result<usize, SweepError> {
    let before = std::time::SystemTime::now() - after;
    let mut listing = store.list(&Key::from(PREFIX));
    let mut found: BTreeMap<Uuid, Vec<Key>> = BTreeMap::new();
    let mut gone = 0;
    while let Some(object) = listing.try_next().await? {
        if std::time::SystemTime::from(object.last_modified) > before {
            continue;
        }
        let job = object.location.parts().nth(1);
        let Some(job) = job.and_then(|part| part.as_ref().parse().ok()) else {
            continue;
        };
        found.entry(job).or_default().push(object.location);
        if found.len() >= PIECE {
            gone += remove(pool, store, std::mem::take(&mut found)).await?;
        }
    }
    gone += remove(pool, store, found).await?;
    Ok(gone)
}

async fn remove(
    pool: &PgPool,
    store: &Store,
    mut found: BTreeMap<Uuid, Vec<Key>>,
) -> Result<usize, SweepError> {
    let jobs: Vec<Uuid> = found.keys().copied().collect();
    for known in submit::existing(pool, &jobs).await? {
        found.remove(&known);
    }
    let mut gone = 0;
    for key in found.values().flatten() {
        store.delete(key).await?;
        gone += 1;
    }
    if gone > 0 {
        tracing::info!(gone, "files of no job were let go");
    }
    Ok(gone)
}
