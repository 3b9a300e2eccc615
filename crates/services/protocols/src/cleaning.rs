//! Periodic work, by one process at a time: dead letters that nobody touched are archived, published events and
//! documents without a protocol are let go. And, by whoever asks, what stands where is counted.

use std::{collections::HashSet, time::Duration};

use futures_util::TryStreamExt;
use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};
use postrider_blob::{Error as StoreError, Key, Store};
use postrider_inspect::gauges::{Gauge, gauge_value};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{counters, document::FOLDER, model::Status, operate, operate::Refused, store};

/// How often dead letters are archived, unless they are archived sooner.
const SWEEP: Duration = Duration::from_secs(60);

/// How often the store is looked through: it may be large.
const LOOK_THROUGH: Duration = Duration::from_secs(6 * 3600);

/// A document without a protocol that is younger may belong to an upload under way.
const UNDER_WAY: Duration = Duration::from_secs(24 * 3600);

/// Protocols per piece: short transactions.
const PIECE: i64 = 500;

/// Archives until the stop.
pub async fn archive(
    pool: PgPool,
    after: Duration,
    retention: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let every = SWEEP.min(after.max(Duration::from_secs(1)));
    let task = |_| async {
        sweep(pool.clone(), after).await?;
        clean(pool.clone(), retention).await
    };
    let periodic = Periodic::new("protocols.archive", every);
    run_periodic(pool.clone(), periodic, stop, task).await
}

/// Archives every dead letter that nobody touched for so long; says how many.
pub async fn sweep(pool: PgPool, after: Duration) -> Result<u64, Error> {
    let mut archived = 0;
    loop {
        let due = store::archivable(&pool, after, PIECE).await?;
        let before = archived;
        for id in due {
            match operate::archive(&pool, id, after).await {
                Ok(true) => archived += 1,
                // Retried since, or archived by whoever opened it.
                Ok(false) => {}
                Err(Refused::Engine(error)) => return Err(error),
                Err(refused) => {
                    tracing::error!(protocol = %id, %refused, "a dead letter can't be archived");
                }
            }
        }
        if archived == before {
            return Ok(archived);
        }
    }
}

/// Lets go of events that were published so long ago.
async fn clean(pool: PgPool, retention: Duration) -> Result<(), Error> {
    while store::clean(&pool, retention, PIECE).await? > 0 {}
    Ok(())
}

/// Removes documents whose upload never ended, until the stop.
pub async fn tidy(pool: PgPool, files: Store, stop: CancellationToken) -> Result<(), Error> {
    let task = |_| async {
        match remove_strays(&pool, &files, UNDER_WAY).await {
            Ok(removed) => tracing::debug!(removed, "documents without a protocol removed"),
            Err(error) => tracing::warn!(%error, "the store can't be looked through now"),
        }
        Ok::<(), Error>(())
    };
    let periodic = Periodic::new("protocols.tidy", LOOK_THROUGH);
    run_periodic(pool.clone(), periodic, stop, task).await
}

/// Why the store could not be looked through.
#[derive(Debug, thiserror::Error)]
pub enum NotTidied {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Removes documents older than this that belong to no protocol; says how many.
pub async fn remove_strays(
    pool: &PgPool,
    files: &Store,
    older_than: Duration,
) -> Result<u64, NotTidied> {
    let limit = OffsetDateTime::now_utc() - older_than;
    let listed = files.list(&Key::from(FOLDER));
    let old = listed.try_filter(|file| {
        std::future::ready(file.last_modified.timestamp() < limit.unix_timestamp())
    });
    let mut pieces = old.try_chunks(500);
    let mut removed = 0;
    while let Some(piece) = pieces.try_next().await.map_err(|error| error.1)? {
        let named: Vec<(Uuid, Key)> = piece
            .into_iter()
            .filter_map(|file| Some((owner(&file.location)?, file.location)))
            .collect();
        let ids: Vec<Uuid> = named.iter().map(|(id, _)| *id).collect();
        let known: HashSet<Uuid> = store::known(pool, &ids).await?.into_iter().collect();
        for (_, key) in named.iter().filter(|(id, _)| !known.contains(id)) {
            files.delete(key).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The protocol that a file of the store belongs to.
fn owner(key: &Key) -> Option<Uuid> {
    key.parts().nth(1)?.as_ref().parse().ok()
}

/// What the gauges and the alerts look at: how many protocols stand where.
pub async fn readings(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let counts = store::counts(pool).await?;
    let standing = |status: Status| {
        let count = counts.iter().find(|(found, _)| *found == status);
        let count = gauge_value(count.map_or(0, |(_, count)| *count));
        Gauge::labeled(counters::STANDING, "status", status.as_str(), count)
    };
    Ok(Status::ALL.into_iter().map(standing).collect())
}
