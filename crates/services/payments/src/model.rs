//! Payments: money, requests, states and reasons. Pure: no I/O.

mod currency;
mod money;
mod request;
mod trace_context;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

pub use currency::Currency;
pub use money::{Amount, InvalidAmount, Money, TooManyDecimalPlaces};
pub use request::{Payment, PaymentMessage, PaymentRequest};
pub(crate) use request::{account_id, money};
pub use trace_context::TraceContext;
pub(crate) use trace_context::{PARENT, STATE};

/// The status of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[sqlx(type_name = "text", rename_all = "UPPERCASE")]
pub enum Status {
    /// Not settled yet.
    Pending,
    /// The wallet deducted the amount.
    Succeed,
    /// The wallet did not deduct the amount and never will.
    Failed,
}

impl Status {
    /// The name in the API and the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Succeed => "SUCCEED",
            Self::Failed => "FAILED",
        }
    }
}

/// The wallet's result of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[sqlx(type_name = "text", rename_all = "UPPERCASE")]
pub enum Outcome {
    /// The amount was deducted.
    Succeed,
    /// The amount was not deducted and never will be.
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
    /// The name in the API and the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeed => "SUCCEED",
            Self::Failed => "FAILED",
        }
    }
}

/// Why a payment is pending, or was until it was reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PendingReason {
    /// Its message could not be published.
    OutboxExhausted,
    /// The wallet's consumer failed to handle its message and gave up.
    ListenerFailed,
    /// The wallet has handled it, but the callback has failed.
    CallbackFailed,
    /// It is in progress, as far as is known.
    InFlight,
}

impl PendingReason {
    /// The name in the API and the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OutboxExhausted => "OUTBOX_EXHAUSTED",
            Self::ListenerFailed => "LISTENER_FAILED",
            Self::CallbackFailed => "CALLBACK_FAILED",
            Self::InFlight => "IN_FLIGHT",
        }
    }

    /// Why a payment is pending, from the state of its outbox row and, if available, the wallet's state.
    #[must_use]
    pub const fn new(exhausted: bool, wallet: Option<WalletState>) -> Self {
        match wallet {
            Some(WalletState::CallbackFailed) => Self::CallbackFailed,
            Some(WalletState::Failed) => Self::ListenerFailed,
            Some(WalletState::CallbackPending) => Self::InFlight,
            Some(WalletState::Unknown) | None if exhausted => Self::OutboxExhausted,
            Some(WalletState::Unknown) | None => Self::InFlight,
        }
    }
}

/// What the wallet knows about a payment that is pending on the requests' side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WalletState {
    /// It has not handled the payment.
    Unknown,
    /// Its consumer failed to handle the payment and gave up.
    Failed,
    /// It has handled the payment and the callback is still under way.
    CallbackPending,
    /// It has handled the payment and the callback has failed.
    CallbackFailed,
}

/// Why the wallet declined a payment: a business result, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclineReason {
    /// The balance is too small.
    InsufficientFunds,
    /// No such account.
    UnknownAccount,
    /// The account has a different currency.
    CurrencyMismatch,
}

impl DeclineReason {
    /// The name in the API and the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InsufficientFunds => "INSUFFICIENT_FUNDS",
            Self::UnknownAccount => "UNKNOWN_ACCOUNT",
            Self::CurrencyMismatch => "CURRENCY_MISMATCH",
        }
    }
}

/// The response to an accepted payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentReceipt {
    /// The payment's uuid.
    pub uuid: Uuid,
    /// The payment's status.
    pub status: Status,
}

/// A payment as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PaymentView {
    /// The payment's uuid.
    pub uuid: Uuid,
    /// The account to deduct from.
    pub account_id: String,
    /// The amount.
    #[schema(example = "12.50")]
    pub amount: String,
    /// The currency code.
    pub currency: String,
    /// The client's description.
    pub description: Option<String>,
    /// The payment's status.
    pub status: Status,
    /// While pending: OUTBOX_EXHAUSTED, LISTENER_FAILED, CALLBACK_FAILED or IN_FLIGHT. If failed: why.
    pub reason: Option<String>,
    /// When it was accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was settled; until then, when it was accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// An account of the wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountView {
    /// The account's id.
    pub account_id: String,
    /// The currency code.
    pub currency: String,
    /// The current balance.
    #[schema(example = "100.00")]
    pub balance: String,
}

/// One double-entry booking line of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EntryView {
    /// The entry's id.
    pub id: i64,
    /// The payment's uuid, or that of the account's opening.
    pub uuid: Uuid,
    /// `payment` or `opening`.
    pub kind: String,
    /// The amount; negative for a deduction.
    pub amount: String,
    /// The currency code.
    pub currency: String,
    /// When it was booked.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}
