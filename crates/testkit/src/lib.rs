//! What the tests stand on.
//!
//! - [`db`]: a real PostgreSQL database for each test, made in a few milliseconds.
//! - [`wait`]: waiting for a state with a deadline, instead of sleeping and hoping.
//! - [`crash`]: making the program fail at named points.
//! - [`proxy`]: a network between the program and its peers that fails as told.
//! - [`process`]: the program as a child process that can be killed.
//! - [`browser`]: a real browser, and all that goes wrong in it.
//! - [`s3`]: an S3 server that goes away and comes back.
//! - [`pooler`]: a real PgBouncer before a test's database.
//! - [`servers`]: real brokers: NATS, RabbitMQ and Kafka.
//!
//! Everything is safe to use from tests that run side by side.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that cannot help fails the test that called it"
)]

pub mod browser;
pub mod builders;
pub mod crash;
pub mod db;
pub mod pooler;
pub mod process;
pub mod proxy;
pub mod s3;
pub mod servers;
pub mod wait;

pub use db::TestDb;
pub use process::Program;
pub use proxy::Proxy;
pub use s3::S3Server;
pub use wait::{eventually, within};
