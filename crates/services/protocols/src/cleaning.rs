//! Periodic cleanup, by one process at a time: archives old dead letters, deletes old published events, and removes
//! documents without a protocol.

use std::{collections::HashSet, time::Duration};

use futures_util::TryStreamExt;
use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};
use postrider_blob::{Key, Store};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{ProtocolError, document::FOLDER, service::transitions, store};

/// The maximum interval between two rounds of archiving.
const ARCHIVE_INTERVAL: Duration = Duration::from_secs(60);

/// How often the object store is scanned; it may be large.
const SCAN_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// A younger document without a protocol may belong to an upload in progress.
const MIN_ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// Rows per transaction.
const CHUNK_SIZE: i64 = 500;

/// Archives old dead letters and deletes old events until the stop.
pub async fn archive(
    pool: PgPool,
    after: Duration,
    retention: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let interval = ARCHIVE_INTERVAL.min(after.max(Duration::from_secs(1)));
    let task = |_| async {
        archive_dead_letters(&pool, after).await?;
        while store::delete_published(&pool, retention, CHUNK_SIZE).await? > 0 {}
        Ok::<(), Error>(())
    };
    let periodic = Periodic::new("protocols.archive", interval);
    run_periodic(pool.clone(), periodic, stop, task).await
}

/// Archives every dead letter that has not changed for this long; returns the number archived.
pub async fn archive_dead_letters(pool: &PgPool, after: Duration) -> Result<u64, Error> {
    let mut archived = 0;
    loop {
        let due = store::archivable(pool, after, CHUNK_SIZE).await?;
        let before = archived;
        for id in due {
            match transitions::archive(pool, id, after).await {
                Ok(true) => archived += 1,
                // Retried or archived in the meantime.
                Ok(false) => {}
                Err(ProtocolError::Engine(error)) => return Err(error),
                Err(error) => {
                    tracing::error!(protocol = %id, %error, "can't archive a dead letter; it stays listed");
                }
            }
        }
        if archived == before {
            return Ok(archived);
        }
    }
}

/// Removes documents of uploads that never committed, until the stop.
pub async fn remove_orphans(
    pool: PgPool,
    files: Store,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| async {
        match remove_orphans_older_than(&pool, &files, MIN_ORPHAN_AGE).await {
            Ok(removed) => tracing::debug!(removed, "removed documents without a protocol"),
            Err(error) => {
                tracing::warn!(%error, "can't scan the object store for orphaned documents; retrying in the next round");
            }
        }
        Ok::<(), Error>(())
    };
    let periodic = Periodic::new("protocols.tidy", SCAN_INTERVAL);
    run_periodic(pool.clone(), periodic, stop, task).await
}

/// Removes documents older than this that belong to no protocol; returns the number removed.
pub async fn remove_orphans_older_than(
    pool: &PgPool,
    files: &Store,
    age: Duration,
) -> Result<u64, ProtocolError> {
    let limit = OffsetDateTime::now_utc() - age;
    let files_of_service = files.list(&Key::from(FOLDER));
    let old = files_of_service.try_filter(|file| {
        std::future::ready(file.last_modified.timestamp() < limit.unix_timestamp())
    });
    let mut chunks = old.try_chunks(500);
    let mut removed = 0;
    while let Some(chunk) = chunks.try_next().await.map_err(|error| error.1)? {
        let owned: Vec<(Uuid, Key)> = chunk
            .into_iter()
            .filter_map(|file| Some((owner(&file.location)?, file.location)))
            .collect();
        let ids: Vec<Uuid> = owned.iter().map(|(id, _)| *id).collect();
        let existing: HashSet<Uuid> = store::existing(pool, &ids).await?.into_iter().collect();
        for (_, key) in owned.iter().filter(|(id, _)| !existing.contains(id)) {
            files.delete(key).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The protocol that a file in the object store belongs to.
fn owner(key: &Key) -> Option<Uuid> {
    key.parts().nth(1)?.as_ref().parse().ok()
}
