//! Tests of the binary from the outside.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod access;
mod alert_cases;
mod alert_rules;
mod alerts;
mod carrier;
mod commands;
mod console;
mod demo;
mod deploy;
mod doctor;
mod evidence;
mod evidence_crashes;
mod exports;
mod lifecycle;
mod metrics;
mod operate;
mod orders;
mod orders_crashes;
mod payments;
mod payments_crashes;
mod payments_storm;
mod payments_trace;
mod pooler;
mod program;
mod protocols;
mod schema;
mod schemathesis;
mod transports;
mod usability;
