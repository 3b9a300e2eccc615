//! Limits on how much is sent to one destination: a rate and a number of calls at once.
//!
//! The promise: in any span of time a destination gets at most `burst` calls plus `rate` per second of that span, and
//! never more than `concurrency` at once, from this process. Who may not go now is told when to come again
//! ([`Destination::try_enter`]) or waits in line ([`Destination::enter`]); a wait that is cancelled takes nothing away.

mod bucket;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use bucket::{Bucket, InvalidRate, Rate};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Beyond so many destinations, those that nobody uses are forgotten.
const MANY: usize = 1_024;

/// How often a caller that found all places taken should come again.
const PLACE_TAKEN: Duration = Duration::from_millis(50);

/// What one destination bears.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limit {
    /// Calls per second, with a burst; none: as fast as they come.
    pub rate: Option<Rate>,
    /// Calls at once; none: any number.
    pub concurrency: Option<std::num::NonZeroU32>,
}

/// All destinations of a process, each with its own limit.
#[derive(Debug, Clone)]
pub struct Limits {
    limit: Limit,
    destinations: Arc<Mutex<HashMap<String, Arc<Destination>>>>,
}

impl Limits {
    /// Every destination gets this limit.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            destinations: Arc::default(),
        }
    }

    /// The destination of this name (a host, a broker, an account).
    #[must_use]
    pub fn destination(&self, name: &str) -> Arc<Destination> {
        let mut destinations = lock(&self.destinations);
        if let Some(known) = destinations.get(name) {
            return Arc::clone(known);
        }
        if destinations.len() >= MANY {
            // Forgetting one that has a full bucket and no callers changes nothing for it.
            destinations.retain(|_, destination| {
                Arc::strong_count(destination) > 1 || !destination.is_idle()
            });
        }
        let new = Arc::new(Destination::new(self.limit));
        destinations.insert(name.to_owned(), Arc::clone(&new));
        new
    }
}

/// The right to make one call; the place is free again when it is dropped.
#[derive(Debug)]
#[must_use = "dropping it frees the place"]
pub struct Entry {
    _place: Option<OwnedSemaphorePermit>,
}

/// Not now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the destination has enough to do; try again in {} ms", retry_after.as_millis())]
pub struct Full {
    /// When to come again.
    pub retry_after: Duration,
}

/// One destination.
#[derive(Debug)]
pub struct Destination {
    bucket: Option<Mutex<Bucket>>,
    places: Option<(Arc<Semaphore>, usize)>,
}

impl Destination {
    /// A destination with this limit.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        let places = limit.concurrency.map(|places| {
            let places = usize::try_from(places.get())
                .unwrap_or(usize::MAX)
                .min(Semaphore::MAX_PERMITS);
            (Arc::new(Semaphore::new(places)), places)
        });
        Self {
            bucket: limit.rate.map(|rate| Mutex::new(Bucket::new(rate))),
            places,
        }
    }

    /// Goes now or not at all.
    pub fn try_enter(&self) -> Result<Entry, Full> {
        let place = match &self.places {
            None => None,
            Some((places, _)) => {
                Some(Arc::clone(places).try_acquire_owned().map_err(|_| Full {
                    retry_after: PLACE_TAKEN,
                })?)
            }
        };
        if let Some(bucket) = &self.bucket {
            lock(bucket)
                .take(now())
                .map_err(|retry_after| Full { retry_after })?;
        }
        Ok(Entry { _place: place })
    }

    /// Waits for a place and for the rate.
    pub async fn enter(&self) -> Entry {
        let place = match &self.places {
            None => None,
            // The semaphore is never closed; if it were, there would be no limit to keep.
            Some((places, _)) => Arc::clone(places).acquire_owned().await.ok(),
        };
        if let Some(bucket) = &self.bucket {
            loop {
                let taken = lock(bucket).take(now());
                let Err(wait) = taken else { break };
                tokio::time::sleep(wait).await;
            }
        }
        Entry { _place: place }
    }

    fn is_idle(&self) -> bool {
        let rested = self
            .bucket
            .as_ref()
            .is_none_or(|bucket| lock(bucket).is_full(now()));
        rested
            && self
                .places
                .as_ref()
                .is_none_or(|(places, all)| places.available_permits() == *all)
    }
}

fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// No code panics between two writes to what these locks guard, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
