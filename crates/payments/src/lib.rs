//! payments: a request and its message in one transaction, a wallet that deducts once.
//!
//! Two sides that could be two companies, an orchestrator and a wallet, share a message and a call back but no table.
//! The promise: a request is always recorded, a wallet deducts at most once, and what is stuck says why.

/// The slice's own schema, `payments`.
#[must_use]
pub const fn migrations() -> postrider_engine::migrate::MigrationSet {
    postrider_engine::migration_set!("payments", [])
}
