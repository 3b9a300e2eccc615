//! Transports against real servers: the conformance suite, and what each can do beyond it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod batches;
mod brokers;
mod declaring;
mod exactly_once;
mod intake;
mod log;
mod node_crash;
mod other_senders;
mod plans;
mod postgres;
mod publisher;
mod relay;
mod subscribing;
mod support;
