//! The worker: one loop for all work tables.
//!
//! ```text
//!  hints, polls ─▶ claimer ─▶ buffer ─▶ handlers (bounded) ─▶ settler ─▶ database
//!                     rescuer ─▶ one suspect at a time ─▲  └▶ batch effect, for answers with values
//!                     heartbeat: renews leases ─▶ watchdog: stops a handler before its lease expires
//! ```
//!
//! What it promises:
//! - An item runs only under a lease, and its verdict counts only while that lease is held.
//! - Nothing is lost when a handler panics, the worker is killed, or the database goes away and comes back.
//! - When stopped, a worker finishes or releases what it holds, at no cost to any item.
//! - Memory is bounded in items and bytes, whatever the queue's depth.
//! - Kinds without a handler aren't claimed. They wait, and `postrider.worker` shows that nobody handles them.

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
