//! All SQL of the slice, but for the built-in Case API's own memory.
//!
//! Whoever locks several things locks them in this order: job, row, artifacts. Holding an artifact locks it alone.

pub(crate) mod attach;
pub(crate) mod health;
pub(crate) mod journal;
pub(crate) mod schedule;
pub(crate) mod submit;
pub(crate) mod summary;
pub(crate) mod view;
