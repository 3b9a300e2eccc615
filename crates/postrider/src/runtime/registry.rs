//! The leases that this worker holds, for renewal and the watchdog.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lease::Lease;

struct HeldLease {
    fence: i64,
    /// When the claim or the last renewal was sent; the lease started no earlier.
    since: Instant,
    lost: CancellationToken,
}

/// The leases of one worker. Its lock is held for moments only.
pub(super) struct Registry {
    held: Mutex<HashMap<i64, HeldLease>>,
}

impl Registry {
    pub fn new() -> Self {
        Self {
            held: Mutex::new(HashMap::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, HeldLease>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds leases; returns a token for each, cancelled when that lease is lost.
    pub fn add<'a>(
        &self,
        leases: impl Iterator<Item = &'a Lease>,
        since: Instant,
    ) -> Vec<CancellationToken> {
        let mut held = self.lock();
        leases
            .map(|lease| {
                let lost = CancellationToken::new();
                let entry = HeldLease {
                    fence: lease.fence,
                    since,
                    lost: lost.clone(),
                };
                if let Some(older) = held.insert(lease.id, entry) {
                    // Claimed again while an older claim of ours was still running: the older one is lost.
                    older.lost.cancel();
                }
                lost
            })
            .collect()
    }

    /// Removes leases that were settled.
    pub fn remove<'a>(&self, leases: impl Iterator<Item = &'a Lease>) {
        let mut held = self.lock();
        for lease in leases {
            if held
                .get(&lease.id)
                .is_some_and(|entry| entry.fence == lease.fence)
            {
                held.remove(&lease.id);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns id and fence of the leases that started at least this long ago.
    pub fn older_than(&self, age: Duration) -> Vec<(i64, i64)> {
        let now = Instant::now();
        let held = self.lock();
        held.iter()
            .filter(|(_, entry)| now.duration_since(entry.since) >= age)
            .map(|(id, entry)| (*id, entry.fence))
            .collect()
    }

    /// Records the answer to a renewal sent at `since`: what isn't in `renewed` is lost. Returns the number of lost
    /// leases.
    pub fn renewed(
        &self,
        keys: &[(i64, i64)],
        renewed: &std::collections::HashSet<i64>,
        since: Instant,
    ) -> usize {
        let mut lost = 0;
        let mut held = self.lock();
        for (id, fence) in keys {
            let Some(entry) = held.get_mut(id).filter(|entry| entry.fence == *fence) else {
                continue;
            };
            if renewed.contains(id) {
                entry.since = since;
            } else {
                entry.lost.cancel();
                lost += 1;
            }
        }
        lost
    }

    /// Cancels leases that weren't renewed for this long; returns their number.
    pub fn expire(&self, age: Duration) -> usize {
        let now = Instant::now();
        let held = self.lock();
        let overdue = held
            .values()
            .filter(|entry| now.duration_since(entry.since) >= age && !entry.lost.is_cancelled());
        overdue.map(|entry| entry.lost.cancel()).count()
    }
}
