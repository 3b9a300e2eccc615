//! exports: a batch of inputs in, one file per input out.
//!
//! A client hands over a batch of inputs and gets one file per input in an object store, with reuse of files that
//! exist already, retry, and jobs that fail fast. The promise: each accepted input ends as exactly one registered,
//! whole file, or as a dead letter that says why.
//!
//! ```text
//!  input                                                     job
//!  PENDING ──▶ RUNNING ──▶ SUCCEEDED (made or reused)        SUBMITTED ──▶ RUNNING ──▶ COMPLETED   all succeeded
//!     ▲           │ │ failed, attempts left                      │            │ ▲
//!     │           │ └──▶ RETRY_WAIT ─┐                            │            │ └ redrive ─┐
//!     │           │          ▲───────┘                            │            ├──▶ FAILED ──┘          one in the DLQ
//!     │           └──▶ DLQ   for good, or too often               └────────────┴──▶ CANCELLED           called off
//!     └── redrive ──────┘
//! ```
//!
//! When a job is closed, what was not begun is parked and never begun; what is running finishes and keeps its result.
//!
//! Gauge order: [`model`] (what can be asked for), [`accept`], [`worker`] (find or make a file), [`source`] and
//! `file.rs` (rows in, file out), [`completion`] (jobs follow inputs), [`store`] (all SQL), [`http`].

pub mod accept;
pub mod completion;
pub mod counters;
mod dependency;
mod description;
mod events;
mod file;
pub mod http;
pub mod model;
pub mod operate;
mod reuse;
pub mod settings;
pub mod source;
pub mod store;
mod table;
mod timeline;
mod trouble;
pub mod worker;

pub use description::DESCRIPTION;
pub use http::{Exports, routes};
pub use settings::Settings;
pub use table::{AT_REST, CHECKS, EXPORT_JOB_INPUT};

/// The slice's own schema, `exports`.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!(
        "exports",
        [
            "0001_jobs",
            "0002_sample",
            "0003_cause",
            "0004_leaner_indexes",
            "0005_steady_plans",
            "0006_archived_inputs",
            "0007_parked"
        ]
    )
}

/// What can be wrong with a request about a job.
pub mod codes {
    postrider_web::error_codes! {
        /// No job has this id.
        EXPORT_JOB_NOT_FOUND = "export-job-not-found", NOT_FOUND, "No such job";
        /// The job has no such file, or not yet.
        EXPORT_FILE_NOT_FOUND = "export-file-not-found", NOT_FOUND, "No such file";
        /// The file was made, and somebody has removed it from the store since.
        EXPORT_FILE_GONE = "export-file-gone", GONE, "The file is gone from the store";
        /// The file is known, and the store does not answer.
        EXPORT_STORE_UNAVAILABLE = "export-store-unavailable", SERVICE_UNAVAILABLE, "The store cannot be reached";
        /// The job is over.
        EXPORT_JOB_NOT_CANCELLABLE = "export-job-not-cancellable", CONFLICT, "The job can no longer be cancelled";
        /// The job has not failed.
        EXPORT_JOB_NOT_REDRIVABLE = "export-job-not-redrivable", CONFLICT, "The job cannot be redriven";
    }
}
