//! The trading broker, as the worker sees it.
//!
//! What matters about a failed call is whether the broker may have the order nevertheless: if that is certain to be no,
//! it may be sent again as if for the first time; if it is not, the broker is asked before anything is sent.

mod http;
mod paper;

use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    breaker,
    failure::{Category, Failure},
};
use serde_json::Value;

pub use http::{HttpBroker, HttpSettings, Unusable};
pub use paper::PaperBroker;

/// The way to a broker.
pub trait Broker: Send + Sync + 'static {
    /// Its name in logs.
    fn name(&self) -> &'static str;

    /// Hands over an order: one flat object with its `client_order_id`. Gives what the broker said.
    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, Refusal>>;

    /// What the broker said to this order, if it knows it.
    fn look_up<'a>(
        &'a self,
        client_order_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Refusal>>;
}

/// How a call came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The broker does not want this order, ever.
    Rejected,
    /// The broker has it not, and may take it another time.
    NotTaken,
    /// Nobody can say whether the broker has it.
    Uncertain,
    /// The broker does not let us in, whatever the order: nothing is known of this one that was not known before.
    NotLetIn,
}

/// A call that came to nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{failure}")]
pub struct Refusal {
    /// What is known about the order.
    pub kind: Kind,
    /// Why.
    pub failure: Failure,
    /// When to come again, if the broker said so.
    pub retry_after: Option<Duration>,
    /// What it shows about the broker itself.
    pub shows: breaker::Outcome,
}

impl Refusal {
    /// The broker rejected the order for this reason.
    #[must_use]
    pub fn rejected(reason_code: &str, message: &str) -> Self {
        Self {
            kind: Kind::Rejected,
            failure: Failure::with_category(reason_code, Category::Data, message),
            retry_after: None,
            shows: breaker::Outcome::Answered,
        }
    }

    /// The broker answered, and did not take the order this time.
    #[must_use]
    pub fn not_ok(reason_code: &str) -> Self {
        Self {
            kind: Kind::NotTaken,
            failure: Failure::with_category(
                reason_code,
                Category::System,
                "the broker did not take the order",
            ),
            retry_after: None,
            shows: breaker::Outcome::Answered,
        }
    }

    /// An HTTP status that is neither success nor rejection.
    #[must_use]
    pub fn status(status: u16, kind: Kind, retry_after: Option<Duration>) -> Self {
        Self {
            kind,
            failure: Failure::with_category(
                &status.to_string(),
                if Category::of_status(status).is_transient() {
                    Category::of_status(status)
                } else {
                    Category::System
                },
                format!("the broker answered with status {status}"),
            ),
            retry_after,
            shows: breaker::Outcome::of_status(status),
        }
    }

    /// The broker wants other credentials, or none of ours. It is as good as away until somebody mends that.
    #[must_use]
    pub fn not_let_in(status: u16, retry_after: Option<Duration>) -> Self {
        let message = format!(
            "the broker does not let us in (status {status}); check orders.broker.token and orders.broker.url"
        );
        Self {
            kind: Kind::NotLetIn,
            failure: Failure::with_category(&status.to_string(), Category::System, message),
            retry_after,
            shows: breaker::Outcome::Unavailable,
        }
    }

    /// The broker could not be reached at all, or was lost on the way.
    #[must_use]
    pub fn network(code: &str, kind: Kind, message: impl std::fmt::Display) -> Self {
        Self {
            kind,
            failure: Failure::with_category(code, Category::Network, message),
            retry_after: None,
            shows: breaker::Outcome::Unavailable,
        }
    }
}

/// An answer that says it took the order is one whose `status` is "ok".
fn taken(answer: Value) -> Result<Value, Refusal> {
    match answer.get("status").and_then(Value::as_str) {
        Some("ok") => Ok(answer),
        _ => {
            let reason = answer.get("reason_code").and_then(Value::as_str);
            Err(Refusal::not_ok(reason.unwrap_or("INTERNAL_ERROR")))
        }
    }
}
