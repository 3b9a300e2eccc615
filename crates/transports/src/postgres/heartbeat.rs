//! What goes on in the background of a consumer: leases are renewed, and ordering keys are helped along.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use postrider::Result;
use postrider::catch_panic::catch_panic;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::consumer::Shared;

/// A key whose lock a publisher holds is tried again after this long.
const TICK: Duration = Duration::from_millis(50);
/// How often keys without a head are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub(super) async fn keep(shared: Arc<Shared>, mut dropped: mpsc::UnboundedReceiver<u64>) {
    let renew_every = shared.subscription.lease / 3;
    let mut renewed = Instant::now();
    let mut swept = Instant::now();
    loop {
        tokio::time::sleep(TICK.min(renew_every)).await;
        while let Ok(number) = dropped.try_recv() {
            tracing::warn!(
                group = shared.group(),
                "a delivery was neither settled nor given back"
            );
            shared.release(number).await;
        }
        if renewed.elapsed() >= renew_every {
            renewed = Instant::now();
            // Longer than until the next one makes no sense.
            if let Err(error) = catch_panic("renewing", renew(&shared, renew_every)).await {
                tracing::warn!(%error, group = shared.group(), "leases could not be renewed");
            }
        }
        if let Err(error) = catch_panic("promoting", promote(&shared)).await {
            tracing::debug!(%error, "ordering keys wait to be promoted");
        }
        if swept.elapsed() >= SWEEP_EVERY {
            swept = Instant::now();
            if let Err(error) = catch_panic("sweeping", sweep(&shared)).await {
                tracing::debug!(%error, "ordering keys were not swept");
            }
        }
    }
}

async fn renew(shared: &Shared, patience: Duration) -> Result<()> {
    let count = shared.held.lock().await.len();
    metrics::gauge!("postrider_deliveries_held", "group" => shared.group().to_owned())
        .set(count as f64);
    if count == 0 {
        return Ok(());
    }
    // Before the lock, which settling needs, too.
    let acquiring = tokio::time::timeout(patience, shared.transport.side.acquire());
    let mut connection = acquiring.await.map_err(|_| sqlx::Error::PoolTimedOut)??;
    let mut held = shared.held.lock().await;
    let leases = held.values().map(|held| &held.lease);
    let queue = &shared.transport.queue;
    let renewal = queue.renew(&mut connection, leases, shared.subscription.lease);
    let Ok(lost) = tokio::time::timeout(patience, renewal).await else {
        // A link that went silent: nobody else should wait on it.
        connection.close_on_drop();
        let silent = std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time");
        return Err(sqlx::Error::Io(silent).into());
    };
    let lost = lost?;
    if lost.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        group = shared.group(),
        lost = lost.len(),
        "deliveries went to other consumers"
    );
    held.retain(|_, held| {
        let gone = lost.iter().any(|lost| lost.id == held.lease.id());
        if gone {
            shared.forget(held);
        }
        !gone
    });
    Ok(())
}

async fn promote(shared: &Shared) -> Result<()> {
    let keys = {
        let mut busy = shared
            .busy_keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *busy)
    };
    if keys.is_empty() {
        return Ok(());
    }
    let promoted = async {
        let mut connection = shared.transport.side.acquire().await?;
        shared.transport.queue.promote(&mut connection, &keys).await
    };
    match promoted.await {
        Ok(still_busy) => {
            shared.promote_later(still_busy);
            shared.look.send_replace(());
            Ok(())
        }
        Err(error) => {
            shared.promote_later(keys);
            Err(error)
        }
    }
}

async fn sweep(shared: &Shared) -> Result<()> {
    let mut connection = shared.transport.side.acquire().await?;
    shared
        .transport
        .queue
        .promote_stranded(&mut connection)
        .await?;
    Ok(())
}
