//! orders: an order accepted once, sent surely.
//!
//! A client posts an order under an idempotency key. The promise: one key is one order at the trading broker, however
//! often it is posted and whatever crashes; an order that can't be sent is visible and never sent late.
//!
//! ```text
//!           worker            broker took it
//!  pending ───────▶ sending ────────────────▶ succeeded          ledger: accepted → succeeded
//!     ▲               │ │ no answer, busy
//!     │               │ └──────▶ failed ─┐ (claimed again when due; looked up first if the outcome is uncertain)
//!     │               │            ▲─────┘
//!     │               └▶ aborted  rejected, expired, given up, cancelled     ledger: accepted → failed
//!     └── redrive, only when told that it may be stale ──┘
//! ```
//!
//! Gauge order: [`model`] (what an order is, and when two are the same), [`accept`] (once), [`worker`] (surely),
//! [`broker`] (the other side), [`store`] (all SQL), [`http`].

pub mod accept;
pub mod broker;
pub mod cleaning;
pub mod counters;
pub mod http;
pub mod model;
pub mod operate;
pub mod settings;
pub mod store;
mod table;
mod timeline;
pub mod worker;

pub use http::{Orders, routes};
pub use settings::{Ordering, Settings};
pub use table::{CHECKS, OUTBOX_ORDERS, REOPEN};

/// The slice's own schema, `orders`.
#[must_use]
pub const fn migrations() -> postrider::migrate::MigrationSet {
    postrider::migration_set!(
        "orders",
        [
            "0001_outbox_orders",
            "0002_paper_orders",
            "0003_ordering",
            "0004_cause",
            "0005_steady_plans",
            "0006_cancelled",
            "0007_reopen_order"
        ]
    )
}

/// What can be wrong with a request about an order.
pub mod codes {
    postrider_web::error_codes! {
        /// No order was accepted under this key.
        ORDER_NOT_FOUND = "order-not-found", NOT_FOUND, "No such order";
        /// The order may have reached the broker, or is finished.
        ORDER_NOT_CANCELLABLE = "order-not-cancellable", CONFLICT, "The order can no longer be cancelled";
        /// The order is not aborted, or has expired.
        ORDER_NOT_REDRIVABLE = "order-not-redrivable", CONFLICT, "The order cannot be sent anew";
        /// A redrive did not say that the order may be stale.
        REDRIVE_NOT_CONFIRMED = "redrive-not-confirmed", CONFLICT, "Sending a stale order must be confirmed";
    }
}
