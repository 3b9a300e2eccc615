//! The private server against the real thing: every test has a cluster of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod access;
mod birth;
mod crashes;
mod program;
mod support;
