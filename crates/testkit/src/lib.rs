//! Test support.
//!
//! - [`db`]: a real PostgreSQL database per test, created in milliseconds.
//! - [`wait`]: waits for a condition with a deadline, instead of sleeping.
//! - [`crash`]: makes the program fail at named crash points.
//! - [`proxy`]: a network proxy that injects faults.
//! - [`process`]: the program as a child process that can be killed.
//! - [`browser`]: a real browser, and every error in it.
//! - [`s3`]: an S3 server that can be stopped and restarted.
//! - [`pooler`]: a real PgBouncer in front of a test's database.
//! - [`servers`]: real brokers: NATS, RabbitMQ and Kafka.
//!
//! Everything is safe to use from concurrent tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing helper fails the test that called it"
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
