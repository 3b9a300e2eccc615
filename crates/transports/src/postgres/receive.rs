//! Receiving: claims within the limits, suspects one at a time, and patience between two looks.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use postrider::Error;
use postrider::failure::{Category, Failure};
use postrider::lease::{Claim, Item, Lease, Outcome, ScanCursor, Settlement, Suspect};
use postrider::transport::{DELIVERIES, Delivery, TransportError};
use tokio::task::JoinError;
use tokio::time::Instant;

use super::consumer::{Held, Shared};
use super::{NAME, envelope, trouble};

const POLL_MIN: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_secs(1);
/// About so many bytes of messages are held at most.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// Index entries per look for suspects.
const WINDOW: u32 = 5_000;

/// Deliveries whose consumer was lost, as far as they are known.
#[derive(Debug)]
pub(super) struct Rescue {
    ids: Vec<i64>,
    looked: Option<Instant>,
    further: ScanCursor,
    /// The largest message of late; forgets slowly.
    heaviest: usize,
}

impl Default for Rescue {
    fn default() -> Self {
        Self {
            ids: Vec::new(),
            looked: None,
            further: ScanCursor::START,
            heaviest: 1024,
        }
    }
}

/// A claim that panicked is a mistake of ours, and no reason to receive nothing any more: what it held comes again by itself.
fn broken_off(ended: &JoinError) -> TransportError {
    if ended.is_panic() {
        return TransportError::Unavailable {
            transport: NAME,
            source: Box::new(Error::Panicked("a consumer's claim")),
        };
    }
    TransportError::Closed
}

impl Shared {
    /// Safe to drop: a claim that was begun ends in a task of its own, and the next call finds what it brought.
    pub async fn receive(
        self: &Arc<Self>,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, TransportError> {
        let deadline = Instant::now() + wait;
        let mut hints = self.transport.hints.about(&DELIVERIES);
        let mut look = self.look.subscribe();
        let mut pause = POLL_MIN;
        loop {
            hints.mark_unchanged();
            look.mark_unchanged();
            let fetched = tokio::spawn(Arc::clone(self).fetch(max)).await;
            fetched.unwrap_or_else(|ended| Err(broken_off(&ended)))?;
            let deliveries = self.take(max);
            let now = Instant::now();
            if !deliveries.is_empty() || now >= deadline {
                return Ok(deliveries);
            }
            // The senders live in what we borrow here, so neither can be gone.
            tokio::select! {
                () = tokio::time::sleep_until(deadline.min(now + pause)) => pause = (pause * 2).min(POLL_MAX),
                _ = hints.changed() => pause = POLL_MIN,
                _ = look.changed() => pause = POLL_MIN,
            }
        }
    }

    /// What is ready, without waiting for anything: between taking and returning nothing can get lost.
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
        let _turn = self.turn.lock().await;
        if self.closed.load(Ordering::Relaxed) {
            return Err(TransportError::Closed);
        }
        if self.is_ready() {
            return Ok(());
        }
        let mut rescue = self.rescue.lock().await;
        let room = self.room(rescue.heaviest).min(max);
        if room == 0 || self.take_suspect(&mut rescue).await? {
            return Ok(());
        }
        let limit = u32::try_from(room).unwrap_or(u32::MAX);
        let claim =
            Claim::new(&self.owner, self.subscription.lease, limit).only([self.group().to_owned()]);
        let claimed = self
            .transport
            .queue
            .claim(&self.transport.pool, &claim)
            .await
            .map_err(trouble)?;
        let weights = claimed.iter().map(|(_, item)| item.weight());
        rescue.heaviest = weights
            .max()
            .unwrap_or(0)
            .max(rescue.heaviest - rescue.heaviest / 8)
            .max(64);
        for (lease, item) in claimed {
            self.hand_out(lease, &item, false).await?;
        }
        Ok(())
    }

    /// How many more may be held; with nothing in hand always one, however heavy.
    fn room(&self, heaviest: usize) -> usize {
        let held = self.count.load(Ordering::Relaxed);
        let by_count = self.subscription.prefetch.saturating_sub(held);
        let by_bytes = MOST_BYTES.saturating_sub(self.bytes.load(Ordering::Relaxed)) / heaviest;
        by_count.min(by_bytes).max(usize::from(held == 0))
    }

    /// A delivery whose consumer was lost, alone; none while another such is out. True if there was one.
    async fn take_suspect(&self, rescue: &mut Rescue) -> Result<bool, TransportError> {
        if self.suspect_out.load(Ordering::Relaxed) {
            return Ok(false);
        }
        if rescue.ids.is_empty() && !self.look_for_suspects(rescue).await? {
            return Ok(false);
        }
        while !rescue.ids.is_empty() {
            let (queue, pool) = (&self.transport.queue, &self.transport.pool);
            let suspect = queue
                .claim_suspect(pool, &self.owner, self.subscription.lease, &rescue.ids)
                .await
                .map_err(trouble)?;
            match suspect {
                None => rescue.ids.clear(),
                Some(Suspect::Run(lease, item)) => {
                    rescue.ids.retain(|id| *id != item.id);
                    metrics::counter!("postrider_rescued_total", "table" => queue.table().name)
                        .increment(1);
                    if self.hand_out(lease, &item, true).await? {
                        return Ok(true);
                    }
                }
                Some(Suspect::GiveUp(lease, item)) => {
                    rescue.ids.retain(|id| *id != item.id);
                    let message = format!(
                        "its consumer was lost {} times; the message itself is the likely cause",
                        item.losses
                    );
                    let failure = Failure::with_category("WORKER_LOST", Category::System, message);
                    tracing::error!(group = self.group(), delivery = item.id, %failure, "given up");
                    let outcome = Outcome::Abandoned { failure };
                    self.persist(&[Settlement::new(lease, outcome)]).await?;
                }
            }
        }
        Ok(false)
    }

    /// Looks at the head of the group's deliveries and at one window further on; true if suspects were found.
    async fn look_for_suspects(&self, rescue: &mut Rescue) -> Result<bool, TransportError> {
        let every = (self.subscription.lease / 3).min(Duration::from_secs(1));
        if rescue.looked.is_some_and(|looked| looked.elapsed() < every) {
            return Ok(false);
        }
        rescue.looked = Some(Instant::now());
        let kinds = [self.group().to_owned()];
        let (queue, pool) = (&self.transport.queue, &self.transport.pool);
        let find = async |after| {
            queue
                .find_suspects(pool, after, WINDOW, Some(&kinds))
                .await
                .map_err(trouble)
        };
        let head = find(ScanCursor::START).await?;
        rescue.ids = head.ids;
        rescue.further = match (rescue.further, head.next) {
            (_, None) => ScanCursor::START,
            (ScanCursor::START, Some(second)) => second,
            (further, Some(_)) => {
                let found = find(further).await?;
                rescue.ids.extend(found.ids);
                found.next.unwrap_or(ScanCursor::START)
            }
        };
        Ok(!rescue.ids.is_empty())
    }

    /// Opens the envelope; a delivery whose message can't be read is a dead letter at once. True if it is ready now.
    async fn hand_out(
        &self,
        lease: Lease,
        item: &Item,
        suspect: bool,
    ) -> Result<bool, TransportError> {
        let message = match envelope::open(item) {
            Ok(message) => message,
            Err(failure) => {
                tracing::error!(group = self.group(), delivery = item.id, %failure, "given up");
                self.persist(&[Settlement::new(lease, Outcome::Dead { failure })])
                    .await?;
                return Ok(false);
            }
        };
        let held = Held {
            lease,
            bytes: message.weight(),
            suspect,
        };
        let receipt = self.hold(held).await;
        self.make_ready(Delivery {
            message,
            attempts: u32::try_from(item.attempts).unwrap_or(0),
            redelivered: item.attempts > 0 || item.losses > 0,
            receipt,
        });
        Ok(true)
    }
}
