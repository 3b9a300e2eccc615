//! All SQL of the slice, except the built-in Case API's own records.
//!
//! Lock order: job, row, artifacts. Holding an artifact locks nothing else.

pub(crate) mod attach;
pub(crate) mod attempts;
pub(crate) mod gauges;
pub(crate) mod schedule;
pub(crate) mod submit;
pub(crate) mod summary;
pub(crate) mod timeline;
pub(crate) mod view;
