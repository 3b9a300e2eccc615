//! Clinical protocols: a document pipeline with nine states.
//!
//! A protocol goes through extraction, grounding and review. The promise: every document is in one of nine states,
//! every transition is one of the allowed ones, and every failure is visible and is retried or archived.
//!
//! ```text
//!            PROTOCOL_UPLOADED         CRITERIA_EXTRACTED              reviewer
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
//! Each pass through the pipeline is a numbered try. Events carry the number; a manual retry or a rejection starts the
//! next try and retires the events of the previous one.
//!
//! Read [`model`] (states and criteria), [`service`] (the facade), [`worker`] (the pipeline), [`stage`] (what runs a
//! step), [`document`] (text and PDF), `store` (all SQL), [`http`].

pub mod cleaning;
mod description;
pub mod document;
mod error;
pub mod gauges;
pub mod http;
pub mod model;
pub mod service;
pub mod settings;
pub mod stage;
mod store;
mod table;
mod timeline;
pub mod worker;

pub use description::DESCRIPTION;
pub use error::{ProtocolError, codes};
pub use http::routes;
pub use service::Protocols;
pub use settings::Settings;
pub use table::{CHECKS, OUTBOX};

/// The migrations of the schema `protocols`.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!("protocols", ["0001_baseline"])
}
