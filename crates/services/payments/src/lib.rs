//! payments: a request and its message in one transaction, a wallet that deducts once.
//!
//! Two sides that could be two companies. They share no table and no transaction, only a message and a call back:
//!
//! ```text
//!  orchestrator (schema payments)                         wallet (schema wallet, perhaps another database)
//!  POST /payments ─▶ request + outbox ──▶ transport ──▶ listener ─▶ inbox + account + entries, one transaction
//!                       ▲                                                    │
//!                       └────────── PUT /internal/requests/{uuid} ◀──────────┘
//! ```
//!
//! The promise: a request is always recorded, a uuid is deducted at most once whatever crashes or comes twice, no balance
//! falls below zero, and what is stuck says why. How hard it is tried is the mode: `chance` publishes a bounded number of
//! times, handles a message once and calls back once; `assured` goes on until it is done or a dead letter. What is stuck
//! either way is settled by a [`reconcile`]ing.
//!
//! Gauge order: [`model`] (money, requests, reasons), [`accept`] and [`publish`] (the orchestrator), [`wallet`] (the other
//! side), [`reconcile`], [`store`] (the orchestrator's SQL), [`http`].

pub mod accept;
pub mod cleaning;
pub mod counters;
mod description;
pub mod http;
pub mod model;
pub mod publish;
pub mod reconcile;
mod service;
pub mod settings;
pub mod store;
mod table;
mod timeline;
pub mod wallet;

use postrider::{migrate::MigrationSet, migration_set};

pub use description::DESCRIPTION;
pub use http::routes;
pub use service::Payments;
pub use settings::Settings;
pub use table::{CHECKS, OUTBOX, WALLET_CHECKS, WALLET_OUTBOX};

/// The orchestrator's schema, `payments`.
#[must_use]
pub const fn migrations() -> MigrationSet {
    migration_set!(
        "payments",
        [
            "0001_request_and_outbox",
            "0002_cause",
            "0003_steady_plans",
            "0004_trace"
        ]
    )
}

/// The wallet's schema, `wallet`; needs the engine's own beside it.
#[must_use]
pub const fn wallet_migrations() -> MigrationSet {
    migration_set!(
        "wallet",
        [
            "0001_accounts_and_inbox",
            "0002_wallet_cause",
            "0003_wallet_steady_plans",
            "0004_wallet_trace"
        ]
    )
}

/// What can be wrong with a request about a payment or an account.
pub mod codes {
    postrider_web::error_codes! {
        /// No payment has this uuid.
        PAYMENT_NOT_FOUND = "payment-not-found", NOT_FOUND, "No such payment";
        /// The payment has ended the other way.
        PAYMENT_SETTLED = "payment-settled", CONFLICT, "The payment has ended the other way";
        /// No account has this id.
        ACCOUNT_NOT_FOUND = "account-not-found", NOT_FOUND, "No such account";
        /// An account with this id was opened with other content.
        ACCOUNT_EXISTS = "account-exists", CONFLICT, "The account exists";
    }
}
