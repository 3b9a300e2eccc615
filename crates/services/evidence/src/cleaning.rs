//! Periodic cleanup: old attempts, and files without a job.
//!
//! An upload writes its files before its job commits. A crash in between leaves orphaned files; they are found by the job
//! id in their key, once they are old enough that no upload can still be in progress.

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

use crate::{ingest::PREFIX, store::attempts, store::submit};

/// Interval between two searches for orphaned files.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3_600);

/// Jobs per query.
const CHUNK_SIZE: usize = 500;

/// Interval between two prunings of the attempt log.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Attempts per statement, to keep transactions short.
const PRUNE_BATCH: u32 = 5_000;

/// Minimum retention: the doctor compares counts with the attempt log of a week.
const MIN_RETENTION: Duration = Duration::from_secs(8 * 24 * 3_600);

/// Prunes the attempt log until `stop`, in one process at a time.
pub async fn prune(
    pool: PgPool,
    retention: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let periodic = Periodic::new("evidence.journal", PRUNE_INTERVAL);
    run_periodic(pool.clone(), periodic, stop, |_| {
        let pool = pool.clone();
        async move { prune_once(&pool, retention).await.map(drop) }
    })
    .await
}

/// Deletes the attempts of jobs that have been closed for this long (at least eight days); returns their number.
pub async fn prune_once(pool: &PgPool, retention: Duration) -> Result<u64, sqlx::Error> {
    let mut deleted = 0;
    loop {
        let batch = attempts::prune(pool, retention.max(MIN_RETENTION), PRUNE_BATCH).await?;
        deleted += batch;
        if batch < u64::from(PRUNE_BATCH) {
            tracing::debug!(deleted, "old attempts deleted");
            return Ok(deleted);
        }
    }
}

/// Deletes orphaned files until `stop`, in one process at a time.
pub async fn sweep(
    pool: PgPool,
    store: Store,
    min_age: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let periodic = Periodic::new("evidence.orphans", SWEEP_INTERVAL);
    run_periodic(pool.clone(), periodic, stop, |_| {
        let (pool, store) = (pool.clone(), store.clone());
        async move { sweep_once(&pool, &store, min_age).await.map(drop) }
    })
    .await
}

/// Why a sweep failed.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The store failed.
    #[error("the store can't be listed")]
    Store(#[from] postrider_blob::Error),
    /// The database failed.
    #[error("the database call failed")]
    Database(#[from] sqlx::Error),
}

/// Deletes files that are older than `min_age` and belong to no job; returns their number.
pub async fn sweep_once(
    pool: &PgPool,
    store: &Store,
    min_age: Duration,
) -> Result<usize, SweepError> {
    let before = std::time::SystemTime::now() - min_age;
    let mut listing = store.list(&Key::from(PREFIX));
    let mut found: BTreeMap<Uuid, Vec<Key>> = BTreeMap::new();
    let mut deleted = 0;
    while let Some(object) = listing.try_next().await? {
        if std::time::SystemTime::from(object.last_modified) > before {
            continue;
        }
        let job = object.location.parts().nth(1);
        let Some(job) = job.and_then(|part| part.as_ref().parse().ok()) else {
            continue;
        };
        found.entry(job).or_default().push(object.location);
        if found.len() >= CHUNK_SIZE {
            deleted += remove(pool, store, std::mem::take(&mut found)).await?;
        }
    }
    deleted += remove(pool, store, found).await?;
    Ok(deleted)
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
    let mut deleted = 0;
    for key in found.values().flatten() {
        store.delete(key).await?;
        deleted += 1;
    }
    if deleted > 0 {
        tracing::info!(deleted, "orphaned files deleted");
    }
    Ok(deleted)
}
