//! exports: a batch of inputs in, one file per input out.
//!
//! A client hands over a batch of inputs and gets one file per input in an object store, with reuse of files that
//! exist already, retry, and jobs that fail fast. The promise: each accepted input ends as exactly one registered,
//! whole file, or as a dead letter that says why.

/// The slice's own schema, `exports`.
#[must_use]
pub const fn migrations() -> postrider_engine::migrate::MigrationSet {
    postrider_engine::migration_set!("exports", [])
}
