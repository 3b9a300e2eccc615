//! Arms a crash point from a test: `let trap = crashpoint::at("outbox.after_publish").pause();`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Id;
use tokio::sync::watch;

use crate::plan::{Action, When};
use crate::registry;

/// Builder: first when, then what.
#[must_use = "nothing is armed until an action is chosen"]
#[derive(Debug)]
pub struct Arm {
    point: String,
    when: When,
    scope: Option<Id>,
}

/// Arms a crash point for everything that runs on the caller's runtime; by default on the first
/// hit.
pub fn at(point: &str) -> Arm {
    Arm {
        point: point.to_owned(),
        when: When::Nth(1),
        scope: registry::here(),
    }
}

impl Arm {
    /// On this hit only, counted from now; the first is 1.
    pub fn on_hit(mut self, n: u64) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// On every hit.
    pub fn on_every_hit(mut self) -> Self {
        self.when = When::Every;
        self
    }

    /// For the whole process, including other tests. Use it in a test binary with one test.
    pub fn everywhere(mut self) -> Self {
        self.scope = None;
        self
    }

    /// The point returns [`Injected`](crate::Injected).
    pub fn error(self) -> Armed {
        self.arm(Action::Error)
    }

    /// The point panics.
    pub fn panic(self) -> Armed {
        self.arm(Action::Panic)
    }

    /// The point kills the process with SIGKILL.
    pub fn kill(self) -> Armed {
        self.arm(Action::Kill)
    }

    /// The point sleeps this long without blocking the runtime's thread.
    pub fn stall(self, time: Duration) -> Armed {
        self.arm(Action::Stall(time))
    }

    /// The point waits until the test calls [`Armed::release`].
    pub fn pause(self) -> Armed {
        self.arm(Action::Pause)
    }

    fn arm(self, action: Action) -> Armed {
        let trap = Arc::new(Trap::new(self.point, self.scope, action, self.when));
        registry::add(Arc::clone(&trap));
        Armed { trap }
    }
}

/// An armed point. Dropping it disarms the point and resumes tasks that are paused there.
#[must_use = "dropping it disarms the point"]
#[derive(Debug)]
pub struct Armed {
    trap: Arc<Trap>,
}

impl Armed {
    /// Number of hits since it was armed.
    pub fn hits(&self) -> u64 {
        self.trap.hits.load(Ordering::SeqCst)
    }

    /// Number of times the action ran.
    pub fn fired(&self) -> u64 {
        *self.trap.fired.borrow()
    }

    /// Waits until the action has run; use it with a deadline.
    pub async fn reached(&self) {
        // The sender lives in the borrowed trap, so it can't be closed.
        let _ = self.trap.fired.subscribe().wait_for(|n| *n > 0).await;
    }

    /// Resumes tasks that are paused at the point, now and later.
    pub fn release(&self) {
        self.trap.release.send_replace(true);
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        registry::remove(&self.trap);
        self.release();
    }
}

/// One armed point in the registry.
#[derive(Debug)]
pub(crate) struct Trap {
    point: String,
    scope: Option<Id>,
    action: Action,
    when: When,
    hits: AtomicU64,
    fired: watch::Sender<u64>,
    release: watch::Sender<bool>,
}

impl Trap {
    pub(crate) fn new(point: String, scope: Option<Id>, action: Action, when: When) -> Self {
        Self {
            point,
            scope,
            action,
            when,
            hits: AtomicU64::new(0),
            fired: watch::Sender::new(0),
            release: watch::Sender::new(false),
        }
    }

    pub(crate) fn is_at(&self, point: &str, here: Option<Id>) -> bool {
        self.point == point && (self.scope.is_none() || self.scope == here)
    }

    /// Counts a hit; true if the action runs on this one.
    pub(crate) fn count(&self) -> bool {
        self.when.is(self.hits.fetch_add(1, Ordering::SeqCst) + 1)
    }

    pub(crate) fn fire(&self) {
        self.fired.send_modify(|n| *n += 1);
        if self.scope.is_none() {
            // A process-wide point may have been armed from outside, where only the output is visible.
            eprintln!("crash point {} fired", self.point);
        }
    }

    pub(crate) fn action(&self) -> Action {
        self.action
    }

    pub(crate) async fn released(&self) {
        // See `reached`.
        let _ = self
            .release
            .subscribe()
            .wait_for(|released| *released)
            .await;
    }

    pub(crate) fn is_released(&self) -> bool {
        *self.release.borrow()
    }
}
