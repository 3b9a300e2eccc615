//! Evidence: files attached to dispute cases once, retried by row, with two summaries to the merchant.
//!
//! A merchant uploads a ZIP with a manifest, or JSON that names stored objects. The promise: each file is attached to its
//! case once, no matter how often it is tried or what crashes; transient failures are retried, permanent ones aren't; and
//! the merchant gets two notifications, each once: N1 when every file was tried, N2 when nothing is left to retry.
//!
//! ```text
//!  ZIP ─▶ file_job ─▶ file_job_row ─▶ file_job_artifact
//!                          │                 ▲ hold, record, roll up          ┌─▶ N1, N2 ─▶ webhook, mail
//!                        outbox              │                                │
//!      evidence.attach.requests ─▶ attach_task ─▶ Case API ─▶ evidence.attach.results
//!      evidence.failed.requests ─▶      ▲
//!                          └── scheduler ┘ (rows with something retryable and due)
//! ```
//!
//! Reading order: [`model`] (states and codes), [`service`] (the facade), [`ingest`] (all or nothing), [`events`],
//! [`task_consumer`] (an event becomes a task), [`worker`] (attaches), [`scheduler`] (retries), [`summary_gate`] (when N1
//! and N2 are due), [`notify`] (delivery), [`cases`] (the Case API), `store` (all SQL), [`http`].

pub mod cases;
pub mod cleaning;
mod description;
pub mod error;
pub mod events;
mod files;
pub mod gauges;
pub mod http;
pub mod ingest;
pub mod model;
pub mod notify;
pub mod scheduler;
pub mod service;
pub mod settings;
mod store;
pub mod summary_gate;
mod table;
pub mod task_consumer;
mod timeline;
pub mod worker;

pub use description::DESCRIPTION;
pub use error::{EvidenceError, codes};
pub use http::routes;
pub use service::Evidence;
pub use settings::Settings;
pub use store::view::Filter;
pub use table::{ATTACH_TASKS, CHECKS};

/// The migrations of the schema `evidence`.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!("evidence", ["0001_baseline"])
}
