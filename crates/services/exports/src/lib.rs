//! Exports: one file per input of a batch, in an object store.
//!
//! A client submits a batch of inputs and gets one file per input. Existing files are reused, failures are retried, and a
//! job fails fast. The promise: each accepted input ends as exactly one registered, complete file, or as a dead letter
//! that says why.
//!
//! ```text
//!  input                                                     job
//!  PENDING ──▶ RUNNING ──▶ SUCCEEDED (generated or reused)   SUBMITTED ──▶ RUNNING ──▶ COMPLETED   all succeeded
//!     ▲           │ │ failed, attempts left                      │            │ ▲
//!     │           │ └──▶ RETRY_WAIT ─┐                            │            │ └ redrive ─┐
//!     │           │          ▲───────┘                            │            ├──▶ FAILED ──┘          an input in the DLQ
//!     │           └──▶ DLQ   permanent, or out of attempts        └────────────┴──▶ CANCELLED
//!     └── redrive ──────┘
//! ```
//!
//! When a job is closed, inputs that haven't started are parked and never start; running ones finish and keep their
//! result.
//!
//! Reading order: [`model`] (what can be requested), [`service`] (accept, get, list, cancel, redrive), [`worker`] (find or
//! generate a file), [`source`] and `file` (rows in, file out), [`cleaning`] (jobs follow their inputs), `store` (all
//! SQL), [`http`].

pub mod cleaning;
mod description;
pub mod error;
mod events;
mod file;
pub mod gauges;
pub mod http;
pub mod model;
pub mod service;
pub mod settings;
pub mod source;
mod store;
mod table;
mod timeline;
pub mod worker;

pub use description::DESCRIPTION;
pub use error::{ExportError, codes};
pub use http::routes;
pub use service::Exports;
pub use settings::Settings;
pub use store::Filter;
pub use table::{CHECKS, EXPORT_JOB_INPUT, PARKED_REASONS};

/// The migrations of the schema `exports`.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!("exports", ["0001_baseline"])
}
