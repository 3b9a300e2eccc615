//! The promises of evidence, against a real PostgreSQL, a real store and a Case API with scripted faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod archives;
mod attaching;
mod corrections;
mod notifying;
mod plans;
mod scheduling;
mod schema;
mod support;
