//! The operators' tools against a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod analyze;
mod doctor;
mod gauges;
mod queue_stats;
mod support;
