//! Shared code of the benchmark adapters in Rust.
//!
//! The promise: all adapters understand the same [`Request`], use the same [`Item`]s and report the same way
//! ([`WorkTracker`], [`singles`], [`batches`], [`produce`]), so that a difference in the figures is a difference between
//! the queues. `bench/README.md` describes the protocol, which adapters in other languages follow, too.

mod enqueue;
mod item;
mod report;
mod request;
mod work;

pub use enqueue::{batches, produce, singles};
pub use item::{Item, Items};
pub use request::{Action, Error, Request, Settings};
pub use work::WorkTracker;
