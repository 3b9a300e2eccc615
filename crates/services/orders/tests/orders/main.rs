//! The promises of the slice, against a real PostgreSQL and a broker that misbehaves as told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod acceptance;
mod brokers;
mod corrections;
mod digest;
mod operating;
mod ordering;
mod plans;
mod sending;
mod support;
