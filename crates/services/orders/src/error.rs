//! The service's error type, and the problem document that each error becomes.

use postrider::{Error, ledger::LedgerError};
use postrider_web::{Problem, error_code::codes::INVALID_VALUE};

use crate::model::{InvalidOrder, OutboxStatus};
use codes::{ORDER_NOT_CANCELLABLE, ORDER_NOT_FOUND, ORDER_NOT_REDRIVABLE};

/// Error codes of requests about orders.
pub mod codes {
    postrider_web::error_codes! {
        /// No order was accepted under this key.
        ORDER_NOT_FOUND = "order-not-found", NOT_FOUND, "No such order";
        /// The order may have reached the broker, or is finished.
        ORDER_NOT_CANCELLABLE = "order-not-cancellable", CONFLICT, "The order can no longer be cancelled";
        /// The order is not aborted, or has expired.
        ORDER_NOT_REDRIVABLE = "order-not-redrivable", CONFLICT, "The order can't be redriven";
        /// A redrive did not confirm that the order may be stale.
        REDRIVE_NOT_CONFIRMED = "redrive-not-confirmed", CONFLICT, "Redriving a stale order must be confirmed";
    }
}

/// Why an operation on an order failed.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The request is well-formed JSON but not a valid order.
    #[error(transparent)]
    Invalid(#[from] InvalidOrder),
    /// There is no such order, or its row has been cleaned up.
    #[error("No order with this key can be changed: it doesn't exist or has been cleaned up.")]
    NotFound,
    /// It is too late to cancel the order.
    #[error("The order is {status} and can't be cancelled: {reason}.")]
    NotCancellable {
        /// The order's current status.
        status: OutboxStatus,
        /// Why that rules out a cancel.
        reason: &'static str,
    },
    /// The order can't be redriven.
    #[error("The order is {status} and can't be redriven: {reason}.")]
    NotRedrivable {
        /// The order's current status.
        status: OutboxStatus,
        /// Why that rules out a redrive.
        reason: &'static str,
    },
    /// The ledger refused, or the database failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for OrderError {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<Error> for OrderError {
    fn from(error: Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<OrderError> for Problem {
    fn from(error: OrderError) -> Self {
        let detail = error.to_string();
        match error {
            OrderError::Invalid(invalid) => invalid.into(),
            OrderError::NotFound => Self::new(&ORDER_NOT_FOUND, detail),
            OrderError::NotCancellable { .. } => Self::new(&ORDER_NOT_CANCELLABLE, detail),
            OrderError::NotRedrivable { .. } => Self::new(&ORDER_NOT_REDRIVABLE, detail),
            OrderError::Ledger(error) => error.into(),
        }
    }
}

impl From<InvalidOrder> for Problem {
    fn from(invalid: InvalidOrder) -> Self {
        let detail = format!("The order is invalid: {invalid}.");
        match invalid {
            InvalidOrder::Digest(error) => error.into(),
            InvalidOrder::Field { field, problem } => {
                Self::new(&INVALID_VALUE, detail).field(field, problem)
            }
            InvalidOrder::Key(error) => {
                Self::new(&INVALID_VALUE, detail).field("/idempotency_key", error.to_string())
            }
        }
    }
}
