//! Receiving: claims within the prefetch limits, suspects one at a time, with backoff between polls.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use postrider::Error;
use postrider::failure::{Category, Failure};
use postrider::lease::{Claim, Item, Lease, Outcome, ScanCursor, Settlement, Suspect};
use postrider::transport::{DELIVERIES, Delivery, TransportError};
use tokio::task::JoinError;
use tokio::time::Instant;

use super::consumer::{Outstanding, Shared};
use super::{NAME, envelope, transport_error};

const POLL_MIN: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_secs(1);
/// Approximate maximum size of outstanding messages, in bytes.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Index entries per search for suspects.
const SCAN_WINDOW: u32 = 5_000;

/// Known deliveries whose consumer was lost.
#[derive(Debug)]
pub(super) struct Rescue {
    ids: Vec<i64>,
    searched: Option<Instant>,
    cursor: ScanCursor,
    /// Size of the largest recent message; decays slowly.
    heaviest: usize,
}

impl Default for Rescue {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            searched: None,
            cursor: ScanCursor::START,
            heaviest: 1024,
        }
    }
}

/// A claim that panicked is our bug, but no reason to stop receiving: its deliveries come again when their leases expire.
fn claim_error(ended: &JoinError) -> TransportError {
    if ended.is_panic() {
        return TransportError::Unavailable {
            transport: NAME,
            source: Box::new(Error::Panicked("a consumer's claim")),
        };
    }
    TransportError::Closed
}

impl Shared {
    /// Cancel-safe: a started claim finishes in its own task, and the next call returns what it claimed.
    pub async fn receive(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, TransportError> {
        let deadline = Instant::now() + wait;
        let mut hints = self.transport.hints.subscribe(&DELIVERIES);
        let mut wake = self.wake.subscribe();
        let mut pause = POLL_MIN;
        loop {
            hints.mark_unchanged();
            wake.mark_unchanged();
            let fetched = tokio::spawn(Arc::clone(self).fetch(max)).await;
            fetched.unwrap_or_else(|ended| Err(claim_error(&ended)))?;
            let deliveries = self.take(max);
            let now = Instant::now();
            if !deliveries.is_empty() || now >= deadline {
                return Ok(deliveries);
            }
            // Both senders are borrowed here, so neither can be dropped.
            tokio::select! {
                () = tokio::time::sleep_until(deadline.min(now + pause)) => pause = (pause * 2).min(POLL_MAX),
                _ = hints.changed() => pause = POLL_MIN,
                _ = wake.changed() => pause = POLL_MIN,
            }
        }
    }

    /// Removes ready deliveries. Never awaits, so that a dropped call can't lose them.
    fn take(&self, max: usize) -> Vec<Delivery> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let count = max.min(ready.len());
        ready.drain(..count).collect()
    }

    fn make_ready(&self, delivery: Delivery) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.push_back(delivery);
    }

    fn is_ready(&self) -> bool {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        !ready.is_empty()
    }

    /// Claims up to `max` deliveries, unless some are ready already.
    async fn fetch(self: Arc<Self>, max: usize) -> Result<(), TransportError> {
        let _claiming = self.claiming.lock().await;
        if self.closed.load(Ordering::Relaxed) {
            return Err(TransportError::Closed);
        }
        if self.is_ready() {
            return Ok(());
        }
        let mut rescue = self.rescue.lock().await;
        let capacity = self.capacity(rescue.heaviest).min(max);
        if capacity == 0 || self.take_suspect(&mut rescue).await? {
            return Ok(());
        }
        let limit = u32::try_from(capacity).unwrap_or(u32::MAX);
        let claim =
            Claim::new(&self.owner, self.subscription.lease, limit).only([self.group().to_owned()]);
        let claimed = self
            .transport
            .queue
            .claim(&self.transport.pool, &claim)
            .await
            .map_err(transport_error)?;
        let weights = claimed.iter().map(|(_, item)| item.weight());
        rescue.heaviest = weights
            .max()
            .unwrap_or(0)
            .max(rescue.heaviest - rescue.heaviest / 8)
            .max(64);
        for (lease, item) in claimed {
            self.prepare(lease, &item, false).await?;
        }
        Ok(())
    }

    /// How many more deliveries may be outstanding; always at least one if there are none, however large.
    fn capacity(&self, heaviest: usize) -> usize {
        let count = self.count.load(Ordering::Relaxed);
        let by_count = self.subscription.prefetch.saturating_sub(count);
        let by_bytes = MAX_BYTES.saturating_sub(self.bytes.load(Ordering::Relaxed)) / heaviest;
        by_count.min(by_bytes).max(usize::from(count == 0))
    }

    /// Claims one delivery whose consumer was lost, unless another such is outstanding. True if there was one.
    async fn take_suspect(&self, rescue: &mut Rescue) -> Result<bool, TransportError> {
        if self.suspect_outstanding.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if rescue.ids.is_empty() && !self.find_suspects(rescue).await? {
            return Ok(false);
        }
        while !rescue.ids.is_empty() {
            let (queue, pool) = (&self.transport.queue, &self.transport.pool);
            let suspect = queue
                .claim_suspect(pool, &self.owner, self.subscription.lease, &rescue.ids)
                .await
                .map_err(transport_error)?;
            match suspect {
                None => rescue.ids.clear(),
                Some(Suspect::Run(lease, item)) => {
                    rescue.ids.retain(|id| *id != item.id);
                    metrics::counter!("postrider_rescued_total", "table" => queue.table().name)
                        .increment(1);
                    if self.prepare(lease, &item, true).await? {
                        return Ok(true);
                    }
                }
                Some(Suspect::Exhausted(lease, item)) => {
                    rescue.ids.retain(|id| *id != item.id);
                    let message = format!(
                        "its consumer was lost {} times; the message is the likely cause",
                        item.losses
                    );
                    let failure = Failure::with_category("WORKER_LOST", Category::System, message);
                    tracing::error!(group = self.group(), delivery = item.id, %failure, "the delivery is now a dead letter; fix the cause, then redrive it");
                    let outcome = Outcome::Abandoned { failure };
                    self.persist(&[Settlement::new(lease, outcome)]).await?;
                }
            }
        }
        Ok(false)
    }

    /// Scans the head of the group's deliveries and one further window. True if suspects were found.
    async fn find_suspects(&self, rescue: &mut Rescue) -> Result<bool, TransportError> {
        let interval = (self.subscription.lease / 3).min(Duration::from_secs(1));
        if rescue
            .searched
            .is_some_and(|searched| searched.elapsed() < interval)
        {
            return Ok(false);
        }
        rescue.searched = Some(Instant::now());
        let kinds = [self.group().to_owned()];
        let (queue, pool) = (&self.transport.queue, &self.transport.pool);
        let find = async |after| {
            queue
                .find_suspects(pool, after, SCAN_WINDOW, Some(&kinds))
                .await
                .map_err(transport_error)
        };
        let head = find(ScanCursor::START).await?;
        rescue.ids = head.ids;
        rescue.cursor = match (rescue.cursor, head.next) {
            (_, None) => ScanCursor::START,
            (ScanCursor::START, Some(second)) => second,
            (cursor, Some(_)) => {
                let found = find(cursor).await?;
                rescue.ids.extend(found.ids);
                found.next.unwrap_or(ScanCursor::START)
            }
        };
        Ok(!rescue.ids.is_empty())
    }

    /// Makes the delivery ready. If its message is unreadable it becomes a dead letter, and this returns false.
    async fn prepare(
        &self,
        lease: Lease,
        item: &Item,
        suspect: bool,
    ) -> Result<bool, TransportError> {
        let message = match envelope::read_message(item) {
            Ok(message) => message,
            Err(failure) => {
                tracing::error!(group = self.group(), delivery = item.id, %failure, "the message is unreadable; the delivery is now a dead letter");
                self.persist(&[Settlement::new(lease, Outcome::Dead { failure })])
                    .await?;
                return Ok(false);
            }
        };
        let outstanding = Outstanding {
            lease,
            bytes: message.weight(),
            suspect,
        };
        let receipt = self.register(outstanding).await;
        self.make_ready(Delivery {
            message,
            attempts: u32::try_from(item.attempts).unwrap_or(0),
            redelivered: item.attempts > 0 || item.losses > 0,
            receipt,
        });
        Ok(true)
    }
}
