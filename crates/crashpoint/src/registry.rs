//! Armed points, and hits of all points.
//!
//! Tests run concurrently in one process, so armed points and counts belong to the runtime they were
//! created on; each test has its own. Plans from the environment apply to the whole process.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};

use crate::Injected;
use crate::arm::Trap;
use crate::plan::{self, Action};

/// Environment variable with the plans of a child process.
const VARIABLE: &str = "POSTRIDER_CRASH";

#[derive(Default)]
struct Registry {
    traps: Vec<Arc<Trap>>,
    seen: BTreeMap<&'static str, BTreeMap<String, u64>>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
    let mut registry = Registry::default();
    match plan::parse(&std::env::var(VARIABLE).unwrap_or_default()) {
        Ok(plans) => {
            for (point, action, when) in plans {
                registry
                    .traps
                    .push(Arc::new(Trap::new(point, None, action, when)));
            }
        }
        Err(problem) => {
            // A test whose point isn't armed must not pass.
            eprintln!("{VARIABLE}: {problem}");
            std::process::exit(2);
        }
    }
    Mutex::new(registry)
});

fn registry() -> MutexGuard<'static, Registry> {
    // Points panic on purpose; the registry stays consistent.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The caller's runtime.
pub(crate) fn here() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}

pub(crate) fn add(trap: Arc<Trap>) {
    registry().traps.push(trap);
}

pub(crate) fn remove(trap: &Arc<Trap>) {
    registry().traps.retain(|other| !Arc::ptr_eq(other, trap));
}

/// Counts the hit and returns the trap that fires, if any.
fn pass(point: &'static str) -> Option<Arc<Trap>> {
    let here = here();
    let mut registry = registry();
    let scope = here.map_or_else(String::new, |id| id.to_string());
    *registry
        .seen
        .entry(point)
        .or_default()
        .entry(scope)
        .or_default() += 1;
    registry
        .traps
        .iter()
        .filter(|trap| trap.is_at(point, here))
        // All of them count the hit; the first that is due fires.
        .fold(None, |due, trap| {
            let fires = trap.count();
            due.or_else(|| fires.then(|| Arc::clone(trap)))
        })
}

/// Passes a point in async code; use [`point!`](crate::point).
pub async fn hit(point: &'static str) -> Result<(), Injected> {
    let Some(trap) = pass(point) else {
        return Ok(());
    };
    trap.fire();
    match trap.action() {
        Action::Stall(time) => {
            tokio::time::sleep(time).await;
            Ok(())
        }
        Action::Pause => {
            trap.released().await;
            Ok(())
        }
        action => act(action, point),
    }
}

/// Passes a point in blocking code; use [`blocking_point!`](crate::blocking_point).
pub fn hit_blocking(point: &'static str) -> Result<(), Injected> {
    let Some(trap) = pass(point) else {
        return Ok(());
    };
    trap.fire();
    match trap.action() {
        Action::Stall(time) => {
            std::thread::sleep(time);
            Ok(())
        }
        Action::Pause => {
            while !trap.is_released() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Ok(())
        }
        action => act(action, point),
    }
}

fn act(action: Action, point: &'static str) -> Result<(), Injected> {
    match action {
        Action::Kill => {
            let own = nix::unistd::Pid::this();
            // The process doesn't survive this.
            let _ = nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGKILL);
            std::process::abort()
        }
        #[allow(clippy::panic, reason = "the test asked for it")]
        Action::Panic => panic!("{}", Injected { point }),
        Action::Error | Action::Stall(_) | Action::Pause => Err(Injected { point }),
    }
}

/// Points that were hit on the caller's runtime, that is, in this test, with the number of hits.
pub fn seen() -> BTreeMap<&'static str, u64> {
    let scope = here().map_or_else(String::new, |id| id.to_string());
    registry()
        .seen
        .iter()
        .filter_map(|(point, hits)| Some((*point, *hits.get(&scope)?)))
        .collect()
}

/// Points that were hit in the whole process, with the number of hits.
pub fn seen_anywhere() -> BTreeMap<&'static str, u64> {
    registry()
        .seen
        .iter()
        .map(|(point, hits)| (*point, hits.values().sum()))
        .collect()
}
