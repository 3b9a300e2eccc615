//! The private server with real clusters, one per test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod access;
mod birth;
mod crashes;
mod program;
mod support;
