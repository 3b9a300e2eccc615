//! Ways for messages to go from the outbox to their consumers.
//!
//! All keep the promise of [`postrider_engine::transport`]; `conformance` (a feature) is that promise as a test suite, which
//! each of them passes against a real server.
//!
//! - [`postgres`]: the default; needs nothing but the database, fans out to every subscribed group, keeps a log from
//!   which a group can be served again, and can settle in the consumer's own transaction.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod postgres;

pub use postgres::PostgresTransport;
