//! What every benchmark adapter written in Rust shares.
//!
//! The promise: all adapters understand the same orders ([`Order`]), move the same items
//! ([`Item`]) and report the same way ([`Work`], [`singles`], [`batches`], [`produce`]), so that a difference in the figures is a
//! difference between the queues. The protocol is described in `bench/README.md`; the adapters in
//! other languages follow the same text.

mod enqueue;
mod item;
mod order;
mod report;
mod work;

pub use enqueue::{batches, produce, singles};
pub use item::{Item, Items};
pub use order::{Action, Error, Order, Settings};
pub use work::Work;
