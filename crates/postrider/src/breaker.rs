//! Circuit breakers: a dependency that is down isn't called for a while.
//!
//! After `threshold` consecutive signs that a dependency is unavailable, nobody calls it for `open_for`; then one probe
//! at a time checks whether it is back. Work that meets an open breaker waits and spends no attempt. Only signs about
//! the dependency itself count (connection errors, timeouts, 429, 503); an answer about one item, even a 500 or a 4xx,
//! shows that it is available.
//!
//! Each process has its own state machine, which needs no coordination. Only its transitions are written to
//! `postrider.breaker`, in the background, so that the breakers of all processes can be seen in one place.
//!
//! ```
//! use postrider::breaker::{Breakers, Outcome, Settings};
//!
//! # tokio_test(async {
//! let breakers = Breakers::new(Settings::default());
//! let api = breakers.get("case API");
//! if let Ok(permit) = api.permit() {
//!     // Call the dependency, then report what the call showed.
//!     permit.report(Outcome::from_status(503));
//! }
//! # });
//! # fn tokio_test(f: impl Future) { let _ = f; }
//! ```

mod machine;
mod publish;

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use machine::{Decision, Machine, Outcome, Pass, Settings, State};
use publish::Board;
pub use publish::{BreakerRow, all, publish};

/// The breaker is open: retry later, without spending an attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("calls to {dependency} are suspended because it is unavailable; try again in {} ms", retry_after.as_millis())]
pub struct Open {
    /// The unavailable dependency.
    pub dependency: String,
    /// When to retry.
    pub retry_after: Duration,
}

/// All breakers of a process, by dependency.
#[derive(Debug, Clone, Default)]
pub struct Breakers {
    defaults: Settings,
    all: Arc<Mutex<HashMap<String, Arc<Breaker>>>>,
    board: Arc<Board>,
}

impl Breakers {
    /// Creates breakers with these settings, unless a dependency has its own.
    #[must_use]
    pub fn new(defaults: Settings) -> Self {
        Self {
            defaults,
            ..Self::default()
        }
    }

    /// Returns the breaker of this dependency, with the common settings if it is new.
    #[must_use]
    pub fn get(&self, dependency: &str) -> Arc<Breaker> {
        self.get_with(dependency, self.defaults)
    }

    /// Returns the breaker of this dependency, with its own settings if it is new.
    #[must_use]
    pub fn get_with(&self, dependency: &str, settings: Settings) -> Arc<Breaker> {
        let mut all = lock(&self.all);
        let breaker = all.entry(dependency.to_owned()).or_insert_with(|| {
            metrics::gauge!("postrider_breaker_state", "dependency" => dependency.to_owned()).set(0.0);
            metrics::counter!("postrider_breaker_opened_total", "dependency" => dependency.to_owned()).absolute(0);
            metrics::gauge!("postrider_breakers_open", "dependency" => dependency.to_owned()).increment(0.0);
            Arc::new(Breaker {
                dependency: dependency.to_owned(),
                machine: Mutex::new(Machine::new(settings)),
                board: Arc::clone(&self.board),
            })
        });
        Arc::clone(breaker)
    }
}

/// The breaker of one dependency.
#[derive(Debug)]
pub struct Breaker {
    dependency: String,
    machine: Mutex<Machine>,
    board: Arc<Board>,
}

impl Breaker {
    /// Asks for a call. Report the outcome through the permit.
    pub fn permit(self: &Arc<Self>) -> Result<Permit, Open> {
        let mut machine = lock(&self.machine);
        let before = machine.state();
        let decision = machine.permit(now());
        self.announce(before, &machine);
        match decision {
            Decision::Go(pass) => Ok(Permit {
                breaker: Arc::clone(self),
                pass: Some(pass),
            }),
            Decision::Wait(retry_after) => Err(Open {
                dependency: self.dependency.clone(),
                retry_after,
            }),
        }
    }

    /// Calls the dependency if allowed, and classifies the result.
    pub async fn call<T>(
        self: &Arc<Self>,
        work: impl Future<Output = T>,
        classify: impl FnOnce(&T) -> Outcome,
    ) -> Result<T, Open> {
        let permit = self.permit()?;
        let result = work.await;
        permit.report(classify(&result));
        Ok(result)
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> State {
        lock(&self.machine).state()
    }

    fn settle(&self, pass: Pass, outcome: Option<Outcome>) {
        let mut machine = lock(&self.machine);
        let before = machine.state();
        match outcome {
            Some(outcome) => machine.record(pass, outcome, now()),
            None => machine.abandon(pass),
        }
        self.announce(before, &machine);
    }

    /// Announces a transition, if there was one.
    fn announce(&self, before: State, machine: &Machine) {
        let state = machine.state();
        if state == before {
            return;
        }
        let (level, opened) = match state {
            State::Closed => (0.0, 0),
            State::HalfOpen => (1.0, 0),
            State::Open => (2.0, 1),
        };
        metrics::gauge!("postrider_breaker_state", "dependency" => self.dependency.clone())
            .set(level);
        metrics::counter!("postrider_breaker_opened_total", "dependency" => self.dependency.clone()).increment(opened);
        tracing::warn!(
            dependency = self.dependency,
            state = state.as_str(),
            "circuit breaker"
        );
        self.board.post(
            &self.dependency,
            machine.failures(),
            state,
            machine.open_for_from(now()),
        );
    }
}

/// Permission for one call. Dropping it without a report says nothing about the dependency.
#[derive(Debug)]
#[must_use = "report the outcome of the call"]
pub struct Permit {
    breaker: Arc<Breaker>,
    pass: Option<Pass>,
}

impl Permit {
    /// Tells the breaker what the call showed about the dependency.
    pub fn report(mut self, outcome: Outcome) {
        if let Some(pass) = self.pass.take() {
            self.breaker.settle(pass, Some(outcome));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.breaker.settle(pass, None);
        }
    }
}

/// Tokio's clock, which tests can pause.
fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// No code panics between two writes to what these locks guard, so a poisoned lock is fine.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
