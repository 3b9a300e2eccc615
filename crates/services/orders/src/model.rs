//! States and values of orders; pure.

mod decimal;
mod request;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use decimal::{Decimal, NotADecimal};
pub use request::{
    Invalid, Order, OrderRequest, OrderType, SCOPE, Side, TimeInForce, Version, key,
};

/// How far the request under a key has come, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum LedgerStatus {
    /// It will be sent, or is being sent.
    Accepted,
    /// The broker has it.
    Succeeded,
    /// The broker does not get it.
    Failed,
}

/// Where an order stands on its way to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum OutboxStatus {
    /// Waits for its first attempt.
    Pending,
    /// A worker has it.
    Sending,
    /// The broker has accepted it.
    Succeeded,
    /// Waits for another attempt.
    Failed,
    /// Given up, rejected, expired or cancelled.
    Aborted,
}

impl std::fmt::Display for OutboxStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Sending => "sending",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
        })
    }
}

/// What clients are shown of an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OrderView {
    /// The key that it was posted under.
    pub idempotency_key: String,
    /// How far it has come.
    pub status: LedgerStatus,
    /// SHA-256 of the request's canonical form.
    pub request_digest: String,
    /// What the broker said, or why it failed for good; null until then.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// The row that is worked on; null once it was cleaned away.
    pub outbox: Option<OutboxView>,
}

/// The row of `outbox_orders` that belongs to an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutboxView {
    /// Where it stands.
    pub status: OutboxStatus,
    /// Attempts that failed.
    pub attempts: i32,
    /// The last failure's code.
    pub last_error_code: Option<String>,
    /// What it said.
    pub last_error_msg: Option<String>,
}

impl OrderView {
    /// An order that was accepted a moment ago.
    #[must_use]
    pub fn fresh(order: &Order) -> Self {
        Self {
            idempotency_key: order.key.key().to_owned(),
            status: LedgerStatus::Accepted,
            request_digest: order.digest.to_string(),
            result: None,
            outbox: Some(OutboxView {
                status: OutboxStatus::Pending,
                attempts: 0,
                last_error_code: None,
                last_error_msg: None,
            }),
        }
    }
}
