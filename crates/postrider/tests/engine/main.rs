//! The library against a real PostgreSQL: one binary, one module per concept.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod batcher;
mod breaker;
mod dead_letter;
mod dead_letter_remote;
mod digest;
mod examples;
mod failure;
mod history;
mod inbox;
mod leader;
mod lease;
mod ledger;
mod limits;
mod migrate;
mod operate;
mod outbox;
mod retry;
mod runtime;
mod schema;
mod support;

/// Number of cases per property; override with `PROPTEST_CASES`.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(10_000)
}
