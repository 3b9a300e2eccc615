//! evidence: files attached to dispute cases once, retried by row, summarised twice.
//!
//! A merchant hands in a ZIP with a manifest, or JSON that names stored objects. The promise: each file is attached to
//! its case once, however often it is tried and whatever crashes; what fails for a while is retried, what can't succeed
//! is not; and the merchant hears of it twice, once each: N1 when everything was tried, N2 when nothing is left to try.
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
//! Gauge order: [`model`] (states and codes), [`ingest`] (whole or not at all), [`events`], [`arm`] (an event becomes a
//! task), [`worker`] (once), [`scheduler`] (again), [`gate`] (N1 and N2), [`notify`] (delivered), [`cases`] (the other
//! side), `store` (all SQL), [`http`].

pub mod cases;
pub mod cleaning;
pub mod counters;
mod description;
pub mod events;
mod files;
mod gauges;
pub mod http;
pub mod ingest;
pub mod model;
pub mod notify;
pub mod operate;
pub mod scheduler;
pub mod settings;
mod store;
pub mod summary_gate;
mod table;
pub mod task_consumer;
mod timeline;
pub mod worker;

pub use description::DESCRIPTION;
pub use gauges::readings;
pub use http::{Evidence, routes};
pub use settings::Settings;
pub use store::view::Filter;
pub use table::{ATTACH_TASKS, CHECKS};

/// The slice's own schema, `evidence`.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!(
        "evidence",
        [
            "0001_file_jobs",
            "0002_attach_task",
            "0003_subscriptions",
            "0004_paper_cases",
            "0005_cause",
            "0006_n2_by_time",
            "0007_light_attempts",
            "0008_steady_plans",
            "0009_first_statistics"
        ]
    )
}

/// What can be wrong with a request about evidence.
pub mod codes {
    postrider_web::error_codes! {
        /// No job has this id.
        FILE_JOB_NOT_FOUND = "file-job-not-found", NOT_FOUND, "No such file job";
        /// N2 is out: nothing of the job is changed any more.
        FILE_JOB_CLOSED = "file-job-closed", CONFLICT, "The file job is closed";
        /// The archive, an entry of it or a line of its manifest can't be taken.
        ARCHIVE_REFUSED = "archive-refused", UNPROCESSABLE_ENTITY, "The archive cannot be taken";
        /// The object store can't be written at the moment.
        EVIDENCE_STORE_UNAVAILABLE = "evidence-store-unavailable", SERVICE_UNAVAILABLE, "The files cannot be stored now";
    }
}
