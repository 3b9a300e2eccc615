//! The promises of exports, against a real PostgreSQL, a directory and a real S3 server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod acceptance;
mod bucket;
mod corrections;
mod crashes;
mod operating;
mod plans;
mod reuse;
mod source;
mod support;
