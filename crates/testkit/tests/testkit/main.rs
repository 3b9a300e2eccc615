//! Tests of the test kit itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod brokers;
mod crashing;
mod databases;
mod network;
mod programs;
mod waiting;
