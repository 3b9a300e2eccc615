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
//! - Told to stop, a worker finishes or gives back what it holds, at no cost to any item.
//! - Memory is bounded: items and bytes held are, whatever the queue's depth.
//! - Kinds without a handler are not claimed; they wait, and `postrider.worker` tells that nobody handles them.

mod ahead;
mod claimer;
mod decide;
mod executor;
mod flow;
mod handler;
mod keeper;
mod options;
mod registry;
mod rescuer;
mod settler;
mod side;
mod together;
mod told;
mod verdict;
mod worker;

pub use decide::decide;
pub use handler::{BoxError, Handler};
pub use options::WorkerOptions;
pub use side::Side;
pub(crate) use told::Told;
pub use verdict::{Effect, Handled, Verdict};
pub use worker::Worker;
