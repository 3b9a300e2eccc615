//! The interface to the trading broker.
//!
//! What matters about a failed call is whether the broker may have the order anyway. If it certainly doesn't, the order can
//! be sent again as if for the first time; otherwise the broker is queried before anything is sent.

mod http;
mod paper;

use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    breaker,
    failure::{Category, Failure},
};
use serde_json::Value;

pub use http::HttpBroker;
pub use paper::PaperBroker;

/// A trading broker.
pub trait Broker: Send + Sync + 'static {
    /// Name in logs.
    fn name(&self) -> &'static str;

    /// Sends an order: one flat object with its `client_order_id`. Returns the broker's response.
    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, BrokerError>>;

    /// The broker's response to an order it knows.
    fn find<'a>(
        &'a self,
        client_order_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, BrokerError>>;
}

/// What a failed call says about the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The broker rejected the order for good.
    Rejected,
    /// The broker doesn't have the order and may accept it later.
    NotAccepted,
    /// Unknown whether the broker has the order.
    Uncertain,
    /// The broker refuses our credentials: the call says nothing about the order.
    Unauthorized,
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{failure}")]
pub struct BrokerError {
    /// What it says about the order.
    pub kind: ErrorKind,
    /// Code, category and message.
    pub failure: Failure,
    /// When to retry, if the broker said so.
    pub retry_after: Option<Duration>,
    /// What it says about the broker's health.
    pub health: breaker::Outcome,
}

impl BrokerError {
    /// The broker rejected the order for this reason.
    #[must_use]
    pub fn rejected(reason_code: &str, message: &str) -> Self {
        Self {
            kind: ErrorKind::Rejected,
            failure: Failure::with_category(reason_code, Category::Data, message),
            retry_after: None,
            health: breaker::Outcome::Answered,
        }
    }

    /// The broker responded but didn't accept the order this time.
    #[must_use]
    pub fn not_accepted(reason_code: &str) -> Self {
        Self {
            kind: ErrorKind::NotAccepted,
            failure: Failure::with_category(
                reason_code,
                Category::System,
                "the broker did not accept the order",
            ),
            retry_after: None,
            health: breaker::Outcome::Answered,
        }
    }

    /// An HTTP status that is neither success nor rejection.
    #[must_use]
    pub fn status(status: u16, kind: ErrorKind, retry_after: Option<Duration>) -> Self {
        Self {
            kind,
            failure: Failure::with_category(
                &status.to_string(),
                if Category::from_status(status).is_transient() {
                    Category::from_status(status)
                } else {
                    Category::System
                },
                format!("the broker answered with status {status}"),
            ),
            retry_after,
            health: breaker::Outcome::from_status(status),
        }
    }

    /// The broker refuses our credentials. It counts as unavailable until that is fixed.
    #[must_use]
    pub fn unauthorized(status: u16, retry_after: Option<Duration>) -> Self {
        let message = format!(
            "the broker refuses our credentials (status {status}); check orders.broker.token and orders.broker.url"
        );
        Self {
            kind: ErrorKind::Unauthorized,
            failure: Failure::with_category(&status.to_string(), Category::System, message),
            retry_after,
            health: breaker::Outcome::Unavailable,
        }
    }

    /// The broker could not be reached, or the connection was lost.
    #[must_use]
    pub fn network(code: &str, kind: ErrorKind, message: impl std::fmt::Display) -> Self {
        Self {
            kind,
            failure: Failure::with_category(code, Category::Network, message),
            retry_after: None,
            health: breaker::Outcome::Unavailable,
        }
    }
}

/// A response accepts the order if its `status` is "ok".
fn check_accepted(response: Value) -> Result<Value, BrokerError> {
    match response.get("status").and_then(Value::as_str) {
        Some("ok") => Ok(response),
        _ => {
            let reason = response.get("reason_code").and_then(Value::as_str);
            Err(BrokerError::not_accepted(
                reason.unwrap_or("INTERNAL_ERROR"),
            ))
        }
    }
}
