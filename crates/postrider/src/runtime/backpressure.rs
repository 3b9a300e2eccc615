//! How much is in hand, and how much more to take.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Counts what waits for a handler and what is held at all, and tells the claimer when there is room.
#[derive(Debug, Default)]
pub(super) struct Backpressure {
    /// Claimed, no handler yet.
    waiting: AtomicUsize,
    /// Claimed, not settled.
    held: AtomicUsize,
    /// Bytes of payload that wait or are being handled.
    bytes: AtomicUsize,
    /// What claims under way may bring.
    coming: AtomicUsize,
    pub room: Notify,
    /// A hint, or a promotion of our own: look again.
    pub hint: Notify,
}

impl Backpressure {
    /// A claim of so many sets out.
    pub fn asks(&self, items: usize) -> Asked<'_> {
        self.coming.fetch_add(items, Ordering::Relaxed);
        Asked { items, flow: self }
    }

    pub fn took(&self, items: usize, bytes: usize) {
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

    pub fn coming(&self) -> usize {
        self.coming.load(Ordering::Relaxed)
    }
}

/// A claim under way, which may bring so many. Over when dropped.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub items: usize,
    flow: &'a Backpressure,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.flow.coming.fetch_sub(self.items, Ordering::Relaxed);
        // It may have brought less.
        self.flow.room.notify_one();
    }
}

/// How many items to have waiting: as many as handlers use up in a moment, so that a slow worker does not sit on work
/// that others could do, and a fast one never starves.
#[derive(Debug)]
pub(super) struct Depth {
    now: usize,
    least: usize,
    most: usize,
    /// The largest payload of late; forgets slowly.
    heaviest: usize,
}

impl Depth {
    pub fn new(least: usize, most: usize) -> Self {
        Self {
            now: least.min(most),
            least: least.min(most),
            most,
            heaviest: 1024,
        }
    }

    /// The buffer was used up within this long after it was filled.
    pub fn used_up_in(&mut self, time: Duration) {
        if time < Duration::from_millis(100) {
            self.now = (self.now * 2).min(self.most);
        } else if time > Duration::from_secs(1) {
            self.now = (self.now / 2).max(self.least);
        }
    }

    pub fn saw(&mut self, weights: impl Iterator<Item = usize>) {
        let heaviest = weights.max().unwrap_or(0);
        self.heaviest = heaviest.max(self.heaviest - self.heaviest / 8).max(64);
    }

    /// How many to claim now; none while the buffer is half full, for full batches are cheap batches.
    pub fn wanted(
        &self,
        flow: &Backpressure,
        batch: usize,
        most_bytes: usize,
        most_held: usize,
    ) -> usize {
        let coming = flow.coming();
        let waiting = flow.waiting() + coming;
        if waiting > self.now / 2 {
            return 0;
        }
        let by_bytes =
            (most_bytes.saturating_sub(flow.bytes()) / self.heaviest).saturating_sub(coming);
        let held = flow.held() + coming;
        let by_held = most_held.saturating_sub(held);
        // With nothing in hand one item is always allowed, however heavy.
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
        let mut depth = Depth::new(10, 1000);
        let flow = Backpressure::default();
        assert_eq!(depth.wanted(&flow, 500, 1 << 30, 10_000), 10);
        for _ in 0..10 {
            depth.used_up_in(Duration::from_millis(1));
        }
        assert_eq!(depth.wanted(&flow, 500, 1 << 30, 10_000), 500);
        for _ in 0..10 {
            depth.used_up_in(Duration::from_secs(5));
        }
        assert_eq!(depth.wanted(&flow, 500, 1 << 30, 10_000), 10);
    }

    #[test]
    fn heavy_payloads_shrink_the_claim_but_never_to_nothing() {
        let mut depth = Depth::new(100, 100);
        let flow = Backpressure::default();
        depth.saw([1 << 20].into_iter());
        assert_eq!(depth.wanted(&flow, 500, 10 << 20, 1000), 10);
        assert_eq!(depth.wanted(&flow, 500, 1, 1000), 1);
        flow.took(1, 1 << 20);
        assert_eq!(depth.wanted(&flow, 500, 1, 1000), 0);
    }
}
