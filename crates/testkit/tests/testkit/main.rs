//! The test kit itself must be trustworthy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod databases;
mod waiting;
