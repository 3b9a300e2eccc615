//! Orders: accept an order once per idempotency key and deliver it to the trading broker.
//!
//! A client posts an order under an idempotency key. The promise: one key is one order at the broker, no matter how often
//! the client posts it or what crashes. An order that can't be sent stays visible and is never sent late.
//!
//! ```text
//!           worker            broker accepted
//!  pending ───────▶ sending ────────────────▶ succeeded          ledger: accepted → succeeded
//!     ▲               │ │ no response, busy
//!     │               │ └──────▶ failed ─┐ (retried when due; if the outcome is uncertain, the broker is queried first)
//!     │               │            ▲─────┘
//!     │               └▶ aborted  rejected, expired, out of attempts, cancelled     ledger: accepted → failed
//!     └── redrive, only with allow_stale ──┘
//! ```
//!
//! Reading order: [`model`] (what an order is and when two are the same), [`service`] (accept, get, list, cancel,
//! redrive), [`worker`] (delivery), [`broker`] (the outside party), [`store`] (all SQL), [`http`].

pub mod broker;
pub mod cleaning;
mod description;
pub mod error;
pub mod gauges;
pub mod http;
pub mod model;
pub mod service;
pub mod settings;
pub mod store;
mod table;
mod timeline;
pub mod worker;

pub use description::DESCRIPTION;
pub use error::{OrderError, codes};
pub use http::routes;
pub use service::Orders;
pub use settings::{Ordering, Settings};
pub use table::{CHECKS, OUTBOX_ORDERS, REOPEN};

/// The migrations of the schema `orders`.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!("orders", ["0001_baseline"])
}
