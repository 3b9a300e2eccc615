//! Payments: a request and its message commit in one transaction, and a wallet deducts once.
//!
//! There are two sides, which could be two companies. They share no table and no transaction, only a message and a
//! callback:
//!
//! ```text
//!  requests (schema payments)                             wallet (schema wallet, possibly another database)
//!  POST /payments ─▶ request + outbox ──▶ transport ──▶ consumer ─▶ inbox + account + entries, one transaction
//!                       ▲                                                    │
//!                       └────────── PUT /internal/requests/{uuid} ◀──────────┘
//! ```
//!
//! The promise: an accepted request is always recorded; a uuid is deducted at most once, whatever crashes or is delivered
//! twice; no balance falls below zero; and a stuck payment shows why. The delivery mode decides how persistent the system
//! is: `chance` publishes a bounded number of times, handles a message once and calls back once; `assured` continues until
//! the payment is done or a dead letter. Either way [`reconcile`] settles what is stuck.
//!
//! ```text
//!  PENDING ──▶ SUCCEED   the wallet deducted
//!     └──────▶ FAILED    the wallet declined, or a reconciliation ruled out that it ever will deduct
//! ```
//!
//! Reading order: [`model`] (money, requests, reasons), [`service`] (the facade), [`requests`] (accept and publish),
//! [`wallet`] (deduct and call back), [`reconcile`].

mod description;
pub mod error;
pub mod gauges;
pub mod model;
pub mod reconcile;
pub mod requests;
pub mod service;
pub mod settings;
mod timeline;
pub mod wallet;

use axum::extract::FromRef;
use postrider::{migrate::MigrationSet, migration_set};
use postrider_inspect::doctor::Check;
use utoipa_axum::router::OpenApiRouter;

pub use description::DESCRIPTION;
pub use error::{PaymentError, codes};
pub use requests::OUTBOX;
pub use service::Payments;
pub use settings::Settings;
pub use wallet::{WALLET_CHECKS, WALLET_OUTBOX};

/// Invariants of requests and messages, and of a wallet in the same database.
pub const CHECKS: &[Check] = &[
    requests::MESSAGE_CHECK,
    WALLET_CHECKS[0],
    WALLET_CHECKS[1],
    WALLET_CHECKS[2],
];

/// The migrations of the schema `payments`.
#[must_use]
pub const fn migrations() -> MigrationSet {
    migration_set!("payments", "migrations/payments", ["0001_baseline"])
}

/// The migrations of the schema `wallet`; the wallet's database needs the schema `postrider` too.
#[must_use]
pub const fn wallet_migrations() -> MigrationSet {
    migration_set!("wallet", "migrations/wallet", ["0001_baseline"])
}

/// The routes of both sides, for an application whose state contains [`Payments`].
pub fn routes<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Payments: FromRef<S>,
{
    requests::http::routes().merge(wallet::http::routes())
}
