//! Transports carry messages from the outbox to their consumers.
//!
//! All keep the promises of [`postrider::transport`]. The `conformance` feature is a test suite for those promises, which
//! each transport passes against a real server.
//!
//! - [`postgres`]: the default. It needs only the database, fans out to every subscribed group, keeps a log that can be
//!   replayed to a group, and can settle in the consumer's own transaction.
//! - `nats`, `rabbitmq` and `kafka` (features of the same names): over a broker into the consumer's database; see the
//!   module `broker`.
//!
//! ```no_run
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use postrider::transport::Transport;
//! use postrider_transports::PostgresTransport;
//! use sqlx::PgPool;
//!
//! let pool = PgPool::connect_lazy("postgres://localhost/app")?;
//! let transport: Arc<dyn Transport> = Arc::new(PostgresTransport::new(pool)?);
//! # Ok(())
//! # }
//! ```

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
