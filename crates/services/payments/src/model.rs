//! States, reasons and values of payments; pure.

mod currency;
mod money;
mod request;
mod trace_context;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

pub use currency::Currency;
pub use money::{Amount, Money, NotAnAmount, TooFine};
pub use request::{Invalid, Notice, Payment, PaymentRequest};
pub(crate) use request::{account_id, money};
pub use trace_context::TraceContext;
pub(crate) use trace_context::{PARENT, STATE};

/// How a payment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[sqlx(type_name = "text", rename_all = "UPPERCASE")]
pub enum Status {
    /// The orchestrator does not know the end yet.
    Pending,
    /// The wallet has deducted.
    Succeed,
    /// The wallet has not deducted and never will.
    Failed,
}

impl Status {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Succeed => "SUCCEED",
            Self::Failed => "FAILED",
        }
    }
}

/// How a payment can end, as the wallet tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[sqlx(type_name = "text", rename_all = "UPPERCASE")]
pub enum Outcome {
    /// It has deducted.
    Succeed,
    /// It has not deducted and never will.
    Failed,
}

impl From<Outcome> for Status {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeed => Self::Succeed,
            Outcome::Failed => Self::Failed,
        }
    }
}

impl Outcome {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeed => "SUCCEED",
            Self::Failed => "FAILED",
        }
    }
}

/// Why a payment is stuck, or was until it was reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Stuck {
    /// Its message could not be published.
    OutboxExhausted,
    /// The wallet's listener failed over its message and gave it up.
    ListenerFailed,
    /// The wallet has handled it, and the orchestrator was not told.
    CallbackFailed,
    /// It is under way, as far as anybody knows.
    InFlight,
}

impl Stuck {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutboxExhausted => "OUTBOX_EXHAUSTED",
            Self::ListenerFailed => "LISTENER_FAILED",
            Self::CallbackFailed => "CALLBACK_FAILED",
            Self::InFlight => "IN_FLIGHT",
        }
    }

    /// Why a payment is stuck, from what the orchestrator knows and what the wallet has to say, if it was asked.
    #[must_use]
    pub const fn why(exhausted: bool, wallet: Option<Fact>) -> Self {
        match wallet {
            Some(Fact::Untold) => Self::CallbackFailed,
            Some(Fact::GivenUp) => Self::ListenerFailed,
            Some(Fact::Telling) => Self::InFlight,
            Some(Fact::Unknown) | None if exhausted => Self::OutboxExhausted,
            Some(Fact::Unknown) | None => Self::InFlight,
        }
    }
}

/// What the wallet knows about a payment that the orchestrator knows no end of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// It never heard of it.
    Unknown,
    /// Its listener failed over it and gave it up.
    GivenUp,
    /// It has handled it a moment ago, or is still trying to tell.
    Telling,
    /// It has handled it, and telling came to nothing.
    Untold,
}

/// Why the wallet did not deduct: business, no exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The balance is too small.
    InsufficientFunds,
    /// No such account.
    UnknownAccount,
    /// The account is kept in another currency.
    CurrencyMismatch,
}

impl Refusal {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InsufficientFunds => "INSUFFICIENT_FUNDS",
            Self::UnknownAccount => "UNKNOWN_ACCOUNT",
            Self::CurrencyMismatch => "CURRENCY_MISMATCH",
        }
    }
}

/// What a client is told when it posts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// The payment's identity.
    pub uuid: Uuid,
    /// How it stands.
    pub status: Status,
}

/// What clients are shown of a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentView {
    /// Its identity.
    pub uuid: Uuid,
    /// The account.
    pub account_id: String,
    /// How much.
    #[schema(example = "12.50")]
    pub amount: String,
    /// Of which currency.
    pub currency: String,
    /// Whatever helps to recognise it.
    pub description: Option<String>,
    /// How it stands.
    pub status: Status,
    /// While it is pending: OUTBOX_EXHAUSTED, LISTENER_FAILED, CALLBACK_FAILED or IN_FLIGHT. When it failed: why.
    pub reason: Option<String>,
    /// When it was accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was settled, or accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// An account of the wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountView {
    /// Its id.
    pub account_id: String,
    /// Its currency.
    pub currency: String,
    /// What it holds.
    #[schema(example = "100.00")]
    pub balance: String,
}

/// One line of the books.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EntryView {
    /// Its number.
    pub id: i64,
    /// The payment, or the opening of the account.
    pub uuid: Uuid,
    /// `payment` or `opening`.
    pub kind: String,
    /// What it adds; a deduction is below zero.
    pub amount: String,
    /// Of which currency.
    pub currency: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}
