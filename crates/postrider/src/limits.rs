//! Limits on outgoing calls to one destination: a rate, and a number of concurrent calls.
//!
//! In any span of time, a [`Limiter`] admits at most `burst` calls plus `rate` per second of that span, and never more
//! than `concurrency` at once, from this process. A wait that is cancelled consumes nothing.

mod bucket;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

pub use bucket::{Bucket, InvalidRate, Rate};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What one destination can take.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limit {
    /// Calls per second, with a burst; None means unlimited.
    pub rate: Option<Rate>,
    /// Maximum number of concurrent calls; None means unlimited.
    pub concurrency: Option<NonZeroU32>,
}

/// Permission for one call; ends when dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the call"]
pub struct Permit {
    _slot: Option<OwnedSemaphorePermit>,
}

/// Enforces the limit of one destination.
#[derive(Debug)]
pub struct Limiter {
    bucket: Option<Mutex<Bucket>>,
    slots: Option<Arc<Semaphore>>,
}

impl Limiter {
    /// Creates a limiter with this limit.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        let slots = limit.concurrency.map(|slots| {
            let slots = usize::try_from(slots.get()).unwrap_or(usize::MAX);
            Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS)))
        });
        Self {
            bucket: limit.rate.map(|rate| Mutex::new(Bucket::new(rate))),
            slots,
        }
    }

    /// Waits for a slot and for the rate.
    pub async fn acquire(&self) -> Permit {
        let slot = match &self.slots {
            None => None,
            // The semaphore is never closed; if it were, there would be no limit to enforce.
            Some(slots) => Arc::clone(slots).acquire_owned().await.ok(),
        };
        if let Some(bucket) = &self.bucket {
            loop {
                let now = tokio::time::Instant::now().into_std();
                // No code panics while this lock is held, so a poisoned one is fine.
                let taken = bucket
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take(now);
                let Err(wait) = taken else { break };
                tokio::time::sleep(wait).await;
            }
        }
        Permit { _slot: slot }
    }
}
