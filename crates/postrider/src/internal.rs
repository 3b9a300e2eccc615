//! What Postrider's own crates share. No stability promise: don't depend on it.

pub mod attempts;
mod catch_panic;
pub mod counters;
pub mod duration;
pub mod pool;
pub mod settings;

pub use catch_panic::catch_panic;

pub use crate::dead_letter::query::is_dead;
pub use crate::error::{database_is_transient, is_conflict};
pub use crate::runtime::decide;
pub use crate::wake::hints::Hints;
