//! Faults of a proxy, shared with its connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::{CommitCut, Direction};

/// Current treatment of bytes and new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    #[default]
    Pass,
    BlackHole,
    Delay(Duration),
    Trickle,
    Refuse,
}

/// Shared by a proxy and its connections.
#[derive(Debug, Default)]
pub(super) struct Faults {
    mode: watch::Sender<Mode>,
    /// Incremented to break all open connections.
    generation: watch::Sender<u64>,
    budget: Mutex<Option<(Direction, u64)>>,
    commit: Mutex<Option<CommitCut>>,
    cuts: AtomicU64,
    open: AtomicU64,
}

impl Faults {
    pub(super) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub(super) fn mode(&self) -> Mode {
        *self.mode.borrow()
    }

    pub(super) fn cut_all(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    pub(super) fn generation(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    pub(super) fn arm_budget(&self, direction: Direction, bytes: u64) {
        *lock(&self.budget) = Some((direction, bytes));
    }

    /// How many of these bytes to forward before the connection breaks; `None`: all.
    pub(super) fn spend(&self, direction: Direction, bytes: usize) -> Option<usize> {
        let mut budget = lock(&self.budget);
        match &mut *budget {
            Some((limited, left)) if *limited == direction => {
                let bytes = bytes as u64;
                if bytes < *left {
                    *left -= bytes;
                    return None;
                }
                let allowed = usize::try_from(*left).unwrap_or(usize::MAX);
                *budget = None;
                Some(allowed)
            }
            _ => None,
        }
    }

    pub(super) fn arm_commit(&self, side: CommitCut) {
        *lock(&self.commit) = Some(side);
    }

    /// Takes the armed COMMIT fault, if any.
    pub(super) fn take_commit(&self) -> Option<CommitCut> {
        lock(&self.commit).take()
    }

    pub(super) fn count_cut(&self) {
        self.cuts.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    pub(super) fn open(&self) -> u64 {
        self.open.load(Ordering::SeqCst)
    }

    /// Counts a connection while the guard lives.
    pub(super) fn opened(&self) -> Open<'_> {
        self.open.fetch_add(1, Ordering::SeqCst);
        Open(self)
    }
}

pub(super) struct Open<'a>(&'a Faults);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
