//! The promises of the orders service, against a real PostgreSQL and a broker with scripted faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod acceptance;
mod brokers;
mod corrections;
mod delivery;
mod digest;
mod operations;
mod ordering;
mod plans;
mod support;
