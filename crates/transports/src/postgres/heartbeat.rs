//! A consumer's background task: renews leases and promotes ordering keys.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use postrider::Result;
use postrider::internal::catch_panic;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::consumer::Shared;

/// Interval at which keys are promoted whose lock a publisher held.
const TICK: Duration = Duration::from_millis(50);
/// Interval of the search for keys without a head.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub(super) async fn run(shared: Arc<Shared>, mut dropped: mpsc::UnboundedReceiver<u64>) {
    let renew_interval = shared.subscription.lease / 3;
    let mut renewed = Instant::now();
    let mut swept = Instant::now();
    loop {
        tokio::time::sleep(TICK.min(renew_interval)).await;
        while let Ok(number) = dropped.try_recv() {
            tracing::warn!(
                group = shared.group(),
                "a handler dropped a delivery without settling it; it is redelivered when its lease expires"
            );
            shared.remove(number).await;
        }
        if renewed.elapsed() >= renew_interval {
            renewed = Instant::now();
            if let Err(error) = catch_panic("renewing", renew(&shared, renew_interval)).await {
                tracing::warn!(%error, group = shared.group(), "renewing leases failed; retrying at the next heartbeat");
            }
        }
        if let Err(error) = catch_panic("promoting", promote(&shared)).await {
            tracing::debug!(%error, "promoting ordering keys failed; retrying");
        }
        if swept.elapsed() >= SWEEP_INTERVAL {
            swept = Instant::now();
            if let Err(error) = catch_panic("sweeping", sweep(&shared)).await {
                tracing::debug!(%error, "the search for stranded ordering keys failed; retrying later");
            }
        }
    }
}

async fn renew(shared: &Shared, timeout: Duration) -> Result<()> {
    let count = shared.outstanding.lock().await.len();
    metrics::gauge!("postrider_deliveries_held", "group" => shared.group().to_owned())
        .set(count as f64);
    if count == 0 {
        return Ok(());
    }
    // Before taking the lock, because settling needs it, too.
    let acquiring = tokio::time::timeout(timeout, shared.transport.reserved.acquire());
    let mut connection = acquiring.await.map_err(|_| sqlx::Error::PoolTimedOut)??;
    let mut outstanding = shared.outstanding.lock().await;
    let leases = outstanding.values().map(|delivery| &delivery.lease);
    let queue = &shared.transport.queue;
    let renewal = queue.renew(&mut connection, leases, shared.subscription.lease);
    let Ok(lost) = tokio::time::timeout(timeout, renewal).await else {
        // The connection is unresponsive: nobody else should use it.
        connection.close_on_drop();
        let timed_out = std::io::Error::new(std::io::ErrorKind::TimedOut, "no response in time");
        return Err(sqlx::Error::Io(timed_out).into());
    };
    let lost = lost?;
    if lost.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        group = shared.group(),
        lost = lost.len(),
        "lost leases: the deliveries went to other consumers"
    );
    outstanding.retain(|_, delivery| {
        let is_lost = lost.iter().any(|lost| lost.id == delivery.lease.id());
        if is_lost {
            shared.uncount(delivery);
        }
        !is_lost
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
        let mut connection = shared.transport.reserved.acquire().await?;
        shared.transport.queue.promote(&mut connection, &keys).await
    };
    match promoted.await {
        Ok(still_busy) => {
            shared.promote_later(still_busy);
            shared.wake.send_replace(());
            Ok(())
        }
        Err(error) => {
            shared.promote_later(keys);
            Err(error)
        }
    }
}

async fn sweep(shared: &Shared) -> Result<()> {
    let mut connection = shared.transport.reserved.acquire().await?;
    shared
        .transport
        .queue
        .promote_stranded(&mut connection)
        .await?;
    Ok(())
}
