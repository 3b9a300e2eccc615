//! Which leases this worker holds, and until when: the watchdog's and the keeper's view.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lease::Lease;

struct Held {
    fence: i64,
    /// When the claim or the last renewal was sent; the lease began no earlier.
    since: Instant,
    lost: CancellationToken,
}

/// The leases of one worker. Locks are held for moments only.
pub(super) struct Registry {
    held: Mutex<HashMap<i64, Held>>,
}

impl Registry {
    pub fn new() -> Self {
        Self {
            held: Mutex::new(HashMap::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of new leases; for each, the token that says it is lost.
    pub fn add<'a>(
        &self,
        leases: impl Iterator<Item = &'a Lease>,
        since: Instant,
    ) -> Vec<CancellationToken> {
        let mut held = self.lock();
        leases
            .map(|lease| {
                let lost = CancellationToken::new();
                let entry = Held {
                    fence: lease.fence,
                    since,
                    lost: lost.clone(),
                };
                if let Some(older) = held.insert(lease.id, entry) {
                    // Claimed again while an older claim of ours still ran: that one is over.
                    older.lost.cancel();
                }
                lost
            })
            .collect()
    }

    /// Forgets leases that were settled.
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

    /// Leases that began at least this long ago.
    pub fn older_than(&self, age: Duration) -> Vec<(i64, i64)> {
        let now = Instant::now();
        let held = self.lock();
        held.iter()
            .filter(|(_, entry)| now.duration_since(entry.since) >= age)
            .map(|(id, entry)| (*id, entry.fence))
            .collect()
    }

    /// These were renewed by a statement sent at `since`, except those not in `kept`, which are lost.
    pub fn renewed(
        &self,
        keys: &[(i64, i64)],
        kept: &std::collections::HashSet<i64>,
        since: Instant,
    ) -> usize {
        let mut lost = 0;
        let mut held = self.lock();
        for (id, fence) in keys {
            let Some(entry) = held.get_mut(id).filter(|entry| entry.fence == *fence) else {
                continue;
            };
            if kept.contains(id) {
                entry.since = since;
            } else {
                entry.lost.cancel();
                lost += 1;
            }
        }
        lost
    }

    /// Cancels what has been held for this long without a renewal; returns how many.
    pub fn expire(&self, age: Duration) -> usize {
        let now = Instant::now();
        let held = self.lock();
        let overdue = held
            .values()
            .filter(|entry| now.duration_since(entry.since) >= age && !entry.lost.is_cancelled());
        overdue.map(|entry| entry.lost.cancel()).count()
    }
}
