//! Equal requests of one process share one execution.
//!
//! A client that repeats a request ten times at once should cost one connection, not ten that wait for each other's
//! lock. The first request runs; the others wait for its result without a connection. If the first is cancelled (its
//! client hung up), the next one in line runs.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Key;
use crate::digest::Digest;

/// A result, and whether this caller produced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coalesced<T> {
    /// This caller's own execution.
    Led(T),
    /// The result of an equal request that was running.
    Joined(T),
}

impl<T> Coalesced<T> {
    /// The result, from this call or an earlier one.
    pub fn into_inner(self) -> T {
        match self {
            Self::Led(outcome) | Self::Joined(outcome) => outcome,
        }
    }
}

/// The requests running in this process.
#[derive(Debug)]
pub struct Coalesce<T, E> {
    flights: Mutex<Flights<T, E>>,
}

/// Set by the holder of the lock; the next holder finds it.
type Flight<T, E> = tokio::sync::Mutex<Option<Result<T, Arc<E>>>>;

/// By what makes two requests equal.
type Flights<T, E> = HashMap<(Key, Digest), Arc<Flight<T, E>>>;

impl<T, E> Default for Coalesce<T, E> {
    fn default() -> Self {
        Self {
            flights: Mutex::default(),
        }
    }
}

impl<T: Clone, E> Coalesce<T, E> {
    /// Runs the work, or waits for an equal request that is running it; success and failure are shared alike.
    pub async fn run<F>(
        &self,
        key: &Key,
        digest: &Digest,
        work: impl FnOnce() -> F,
    ) -> Result<Coalesced<T>, Arc<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let participant = Participant::join(self, (key.clone(), *digest));
        let mut outcome = participant.flight.lock().await;
        if let Some(outcome) = outcome.as_ref() {
            return outcome.clone().map(Coalesced::Joined);
        }
        let result = work().await.map_err(Arc::new);
        *outcome = Some(result.clone());
        // Before the lock is released: later requests must check the database again.
        participant.close();
        result.map(Coalesced::Led)
    }

    fn flights(&self) -> MutexGuard<'_, Flights<T, E>> {
        // The map is consistent between any two statements, so a panic elsewhere does no harm.
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A participant of a flight; the last one to leave removes the flight.
struct Participant<'a, T: Clone, E> {
    owner: &'a Coalesce<T, E>,
    id: (Key, Digest),
    flight: Arc<Flight<T, E>>,
}

impl<'a, T: Clone, E> Participant<'a, T, E> {
    fn join(owner: &'a Coalesce<T, E>, id: (Key, Digest)) -> Self {
        let flight = Arc::clone(owner.flights().entry(id.clone()).or_default());
        Self { owner, id, flight }
    }

    fn close(&self) {
        let mut flights = self.owner.flights();
        if flights
            .get(&self.id)
            .is_some_and(|flight| Arc::ptr_eq(flight, &self.flight))
        {
            flights.remove(&self.id);
        }
    }
}

impl<T: Clone, E> Drop for Participant<'_, T, E> {
    fn drop(&mut self) {
        let mut flights = self.owner.flights();
        let mine = flights
            .get(&self.id)
            .is_some_and(|flight| Arc::ptr_eq(flight, &self.flight));
        // Two owners are left: the map and this participant. Nobody can join while the map is locked.
        if mine && Arc::strong_count(&self.flight) == 2 {
            flights.remove(&self.id);
        }
    }
}
