//! The promises of the slice, against real databases, a real HTTP server, and a transport that misbehaves as told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod accepting;
mod assured;
mod corrections;
mod crashes;
mod doctor;
mod guarantees;
mod periodic;
mod reconciling;
mod storm;
mod support;
mod transport;
mod wallet;
