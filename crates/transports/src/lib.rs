//! Ways for messages to go from the outbox to their consumers.
//!
//! All keep the promise of [`postrider::transport`]; `conformance` (a feature) is that promise as a test suite, which
//! each of them passes against a real server.
//!
//! - [`postgres`]: the default; needs nothing but the database, fans out to every subscribed group, keeps a log from
//!   which a group can be served again, and can settle in the consumer's own transaction.
//! - [`nats`], [`rabbitmq`], [`kafka`] (features of the same names): through a broker to the consumer's database; see
//!   [`outside`].

#[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "nats"))]
pub mod broker;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
pub mod postgres;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
mod settings;

pub use postgres::PostgresTransport;
pub use settings::{Kind, Settings};
