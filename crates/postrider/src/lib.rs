//! Durable work on PostgreSQL.
//!
//! The promise: work that was accepted is never lost, never done twice in the database, and never hidden when it
//! fails. Delivery is at least once; an effect that commits in PostgreSQL happens exactly once; every outside effect
//! carries a stable id.
//!
//! Gauge order: [`lease`] (one owner at a time), [`outbox`] (accept with your transaction), [`runtime`] (the worker),
//! [`dead_letter`] (what was given up); then [`inbox`], [`ledger`], [`leader`] and [`breaker`].
//! The schema comes from [`migrations`], run by a [`migrate::Migrator`].

pub mod attempts;
pub mod audit;
pub mod batcher;
pub mod breaker;
pub mod catch_panic;
mod conn;
pub mod counters;
pub mod dead_letter;
pub mod decimal;
pub mod digest;
pub mod duration;
pub mod error;
pub mod failure;
pub mod inbox;
pub mod leader;
pub mod lease;
pub mod ledger;
pub mod limits;
mod lock_wait;
pub mod migrate;
pub mod outbox;
pub mod pool;
pub mod publisher;
pub mod retry;
pub mod runtime;
pub mod settings;
pub mod transport;
pub mod wake;

pub use error::{Error, Result};

/// The engine's own schema, `postrider`.
#[must_use]
pub const fn migrations() -> migrate::MigrationSet {
    migration_set!(
        "postrider",
        [
            "0001_outbox",
            "0002_records",
            "0003_coordination",
            "0004_messages"
        ]
    )
}
