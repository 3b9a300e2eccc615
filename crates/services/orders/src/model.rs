//! Orders: requests, states and views. Pure: no I/O.

mod decimal;
mod request;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use decimal::{InvalidDecimal, PositiveDecimal};
pub use request::{
    InvalidOrder, Order, OrderRequest, OrderType, SCOPE, Side, TimeInForce, Version, key,
};

/// The permanent ledger status of an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum LedgerStatus {
    /// Accepted; not finished yet.
    Accepted,
    /// The broker accepted the order.
    Succeeded,
    /// The order was aborted.
    Failed,
}

/// The delivery status of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum OutboxStatus {
    /// Waiting for its first attempt.
    Pending,
    /// A worker is sending it.
    Sending,
    /// The broker accepted it.
    Succeeded,
    /// Waiting for a retry.
    Failed,
    /// Rejected, expired, cancelled or out of attempts.
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

/// An order as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OrderView {
    /// The key it was posted under.
    pub idempotency_key: String,
    /// The ledger status.
    pub status: LedgerStatus,
    /// SHA-256 of the canonical request.
    pub request_digest: String,
    /// The broker's response, or why the order was aborted; null until then.
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// The delivery row; null once it has been cleaned up.
    pub outbox: Option<OutboxView>,
}

/// An order's row in `outbox_orders`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutboxView {
    /// The delivery status.
    pub status: OutboxStatus,
    /// Number of failed attempts.
    pub attempts: i32,
    /// Code of the last failure.
    pub last_error_code: Option<String>,
    /// Message of the last failure.
    pub last_error_msg: Option<String>,
}

impl OrderView {
    /// The view of an order that has just been accepted.
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
