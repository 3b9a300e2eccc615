//! How many items the worker holds, and how many more to claim.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Counts waiting and held items, and notifies the claimer when there is room.
#[derive(Debug, Default)]
pub(super) struct Backpressure {
    /// Claimed, waiting for a handler.
    waiting: AtomicUsize,
    /// Claimed, not yet settled.
    held: AtomicUsize,
    /// Payload bytes waiting or being handled.
    bytes: AtomicUsize,
    /// Items that claims under way may return.
    pending: AtomicUsize,
    pub room: Notify,
    /// Notified by a wake-up hint or a promotion of our own: poll again.
    pub hint: Notify,
}

impl Backpressure {
    /// Registers a claim of up to this number of items.
    pub fn begin_claim(&self, items: usize) -> PendingClaim<'_> {
        self.pending.fetch_add(items, Ordering::Relaxed);
        PendingClaim {
            items,
            backpressure: self,
        }
    }

    pub fn claimed(&self, items: usize, bytes: usize) {
        self.waiting.fetch_add(items, Ordering::Relaxed);
        self.held.fetch_add(items, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn started(&self, items: usize) {
        self.waiting.fetch_sub(items, Ordering::Relaxed);
        self.room.notify_one();
    }

    pub fn handled(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub fn settled(&self, items: usize) {
        self.held.fetch_sub(items, Ordering::Relaxed);
        self.room.notify_one();
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }
}

/// A claim under way, of up to `items` items; ends when dropped.
#[derive(Debug)]
pub(super) struct PendingClaim<'a> {
    pub items: usize,
    backpressure: &'a Backpressure,
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        self.backpressure
            .pending
            .fetch_sub(self.items, Ordering::Relaxed);
        // It may have returned fewer.
        self.backpressure.room.notify_one();
    }
}

/// The number of items to prefetch: as many as the handlers finish in a moment. A slow worker doesn't sit on work that
/// others could do, and a fast one never starves.
#[derive(Debug)]
pub(super) struct PrefetchDepth {
    now: usize,
    least: usize,
    max_batch: usize,
    /// The largest recent payload; decays slowly.
    heaviest: usize,
}

impl PrefetchDepth {
    pub fn new(least: usize, max_batch: usize) -> Self {
        Self {
            now: least.min(max_batch),
            least: least.min(max_batch),
            max_batch,
            heaviest: 1024,
        }
    }

    /// Adjusts to how long the handlers took to drain a full buffer.
    pub fn drained_in(&mut self, time: Duration) {
        if time < Duration::from_millis(100) {
            self.now = (self.now * 2).min(self.max_batch);
        } else if time > Duration::from_secs(1) {
            self.now = (self.now / 2).max(self.least);
        }
    }

    pub fn observe(&mut self, weights: impl Iterator<Item = usize>) {
        let heaviest = weights.max().unwrap_or(0);
        self.heaviest = heaviest.max(self.heaviest - self.heaviest / 8).max(64);
    }

    /// The number of items to claim now; zero while the buffer is half full, because full batches are cheap.
    pub fn claim_size(
        &self,
        backpressure: &Backpressure,
        batch: usize,
        max_bytes: usize,
        max_held: usize,
    ) -> usize {
        let pending = backpressure.pending();
        let waiting = backpressure.waiting() + pending;
        if waiting > self.now / 2 {
            return 0;
        }
        let by_bytes = (max_bytes.saturating_sub(backpressure.bytes()) / self.heaviest)
            .saturating_sub(pending);
        let held = backpressure.held() + pending;
        let by_held = max_held.saturating_sub(held);
        // With nothing held, one item is always allowed, however large.
        let least = usize::from(held == 0);
        (self.now - waiting)
            .min(batch)
            .min(by_bytes)
            .min(by_held)
            .max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_follows_the_handlers_pace() {
        let mut depth = PrefetchDepth::new(10, 1000);
        let backpressure = Backpressure::default();
        assert_eq!(depth.claim_size(&backpressure, 500, 1 << 30, 10_000), 10);
        for _ in 0..10 {
            depth.drained_in(Duration::from_millis(1));
        }
        assert_eq!(depth.claim_size(&backpressure, 500, 1 << 30, 10_000), 500);
        for _ in 0..10 {
            depth.drained_in(Duration::from_secs(5));
        }
        assert_eq!(depth.claim_size(&backpressure, 500, 1 << 30, 10_000), 10);
    }

    #[test]
    fn heavy_payloads_shrink_the_claim_but_never_to_nothing() {
        let mut depth = PrefetchDepth::new(100, 100);
        let backpressure = Backpressure::default();
        depth.observe([1 << 20].into_iter());
        assert_eq!(depth.claim_size(&backpressure, 500, 10 << 20, 1000), 10);
        assert_eq!(depth.claim_size(&backpressure, 500, 1, 1000), 1);
        backpressure.claimed(1, 1 << 20);
        assert_eq!(depth.claim_size(&backpressure, 500, 1, 1000), 0);
    }
}
