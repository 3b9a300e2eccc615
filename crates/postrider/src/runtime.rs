//! The worker: one loop for all work tables.
//!
//! ```text
//!  hints, polls ─▶ claimer ─▶ buffer ─▶ handlers (so many at once) ─▶ settler ─▶ database
//!                     rescuer ─▶ one suspect at a time ─▲           └▶ together, if their answers carry values
//!                     keeper: renews leases ─▶ watchdog: stops a handler before its lease runs out
//! ```
//!
//! The promises:
//! - An item is run only under a lease, and its verdict counts only while that lease is held.
//! - Nothing is lost when a handler panics, the worker is killed, or the database goes away and comes back.
//! - AfterCommit to stop, a worker finishes or gives back what it holds, at no cost to any item.
//! - Memory is bounded: items and bytes held are, whatever the queue's depth.
//! - Kinds without a handler are not claimed; they wait, and `postrider.worker` tells that nobody handles them.

mod after_commit;
mod backpressure;
mod batch_effect;
mod claimer;
mod decide;
mod executor;
mod fast_path;
mod handler;
mod heartbeat;
mod options;
mod registry;
mod rescuer;
mod settler;
mod verdict;
mod worker;
mod worker_pool;

pub(crate) use after_commit::AfterCommit;
pub use decide::decide;
pub use handler::{BoxError, Handler};
pub use options::WorkerOptions;
pub use verdict::{Effect, Handled, Verdict};
pub use worker::Worker;
pub use worker_pool::WorkerPool;
