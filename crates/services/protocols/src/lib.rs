//! protocols: a document pipeline with nine states.
//!
//! A clinical protocol goes through extraction, grounding and review. The promise: every document is in one of nine
//! states, every move is one of the allowed ones, and a failure is visible, retried or archived.
//!
//! ```text
//!            PROTOCOL_UPLOADED         CRITERIA_EXTRACTED              a person
//!  uploaded ──────▶ extracting ──────────▶ grounding ──────▶ pending_review ──────▶ complete
//!   ▲  ▲              │  ▲ │                │  ▲ │                 │ reject
//!   │  │              ▼  │ │                ▼  │ │                 │
//!   │  │  extraction_failed│   grounding_failed  │                 │
//!   │  │ retry        │    │           │         │                 │
//!   │  └──────────────┴────┼───────────┘         │                 │
//!   │            3 failures or a permanent one: dead_letter ──▶ archived after 7 days
//!   └──────────────────────── retry ────────────┘ ◀────────────────┘
//! ```
//!
//! Each pass through the pipeline is a try with a number. Events carry it, and a retry or a rejection begins the next
//! one and retires the events of the old.
//!
//! Gauge order: [`model`] (states and criteria), [`accept`], [`worker`] (the pipeline), [`stage`] (what does the
//! steps), [`document`] (text and PDF), [`operate`] (retry, review, archive), `store` (all SQL), [`http`].

pub mod accept;
pub mod cleaning;
pub mod counters;
mod description;
pub mod document;
pub mod http;
pub mod model;
pub mod operate;
pub mod settings;
pub mod stage;
mod store;
mod table;
mod timeline;
pub mod worker;

pub use description::DESCRIPTION;
pub use http::{Protocols, routes};
pub use settings::Settings;
pub use table::{CHECKS, OUTBOX};

/// The slice's own schema, `protocols`.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!("protocols", ["0001_protocol", "0002_outbox", "0003_cause"])
}

/// What can be wrong with a request about a protocol.
pub mod codes {
    postrider_web::error_codes! {
        /// No protocol has this id.
        PROTOCOL_NOT_FOUND = "protocol-not-found", NOT_FOUND, "No such protocol";
        /// The protocol has not failed.
        PROTOCOL_NOT_RETRYABLE = "protocol-not-retryable", BAD_REQUEST, "The protocol cannot be retried";
        /// The protocol does not wait for a review.
        PROTOCOL_NOT_REVIEWABLE = "protocol-not-reviewable", CONFLICT, "The protocol cannot be reviewed";
        /// The object store does not take the document now.
        DOCUMENT_STORE_UNAVAILABLE = "document-store-unavailable", SERVICE_UNAVAILABLE, "The document cannot be stored now";
    }
}
