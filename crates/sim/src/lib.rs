//! Simulated outside parties for tests, `postrider sim` and `postrider demo`.
//!
//! Each party speaks HTTP like the real one, keeps everything in memory, records every call, asks for no token and
//! fails as its [`FaultScript`] says:
//!
//! - [`broker`]: the trading broker of the orders service
//! - [`case_api`]: the Case API of the evidence service
//! - [`stages`]: the extraction and grounding stages of the protocols service
//! - [`callback`]: an unreliable link between wallet and orchestrator of the payments service
//! - [`receiver`]: the receiver of evidence notifications
//!
//! [`demo`] runs all five services against them.

pub mod broker;
pub mod callback;
pub mod case_api;
pub mod demo;
mod faults;
pub mod receiver;
pub mod stages;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use faults::{Action, Call, FaultScript, Rule};

/// Locks a record of calls, even after a panic in another thread: a simulator keeps serving.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
