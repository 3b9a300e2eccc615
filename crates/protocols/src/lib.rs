//! protocols: a document pipeline with nine states.
//!
//! A clinical protocol goes through extraction, grounding and review. The promise: every document is in one of nine
//! states, every move is one of the allowed ones, and a failure is visible, retried or archived.

/// The slice's own schema, `protocols`.
#[must_use]
pub const fn migrations() -> postrider_engine::migrate::MigrationSet {
    postrider_engine::migration_set!("protocols", [])
}
