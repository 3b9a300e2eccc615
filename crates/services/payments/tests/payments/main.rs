//! The promises of the payments service, against real databases, a real HTTP server and a faulty transport.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod acceptance;
mod assured;
mod chance;
mod corrections;
mod crashes;
mod doctor;
mod reconciliation;
mod scheduled;
mod storm;
mod support;
mod transport;
mod wallet;
