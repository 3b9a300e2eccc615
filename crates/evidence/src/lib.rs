//! evidence: files attached to dispute cases once, retried by row, summarised twice.
//!
//! A merchant sends evidence files for dispute cases. The promise: each file is attached exactly once, transient
//! failures are retried through the outbox, and each job ends with two summary notifications.

/// The slice's own schema, `evidence`.
#[must_use]
pub const fn migrations() -> postrider_engine::migrate::MigrationSet {
    postrider_engine::migration_set!("evidence", [])
}
