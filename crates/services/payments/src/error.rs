//! The service's error type, and the problem document that each error becomes.

use postrider::Error;
use postrider_web::{Problem, error_code::codes::INVALID_VALUE};

use crate::model::Status;
use codes::{ACCOUNT_EXISTS, ACCOUNT_NOT_FOUND, PAYMENT_NOT_FOUND, PAYMENT_SETTLED};

/// Error codes of requests about payments and accounts.
pub mod codes {
    postrider_web::error_codes! {
        /// No payment has this uuid.
        PAYMENT_NOT_FOUND = "payment-not-found", NOT_FOUND, "No such payment";
        /// The payment was settled with the opposite outcome.
        PAYMENT_SETTLED = "payment-settled", CONFLICT, "The payment was settled with the opposite outcome";
        /// No account has this id.
        ACCOUNT_NOT_FOUND = "account-not-found", NOT_FOUND, "No such account";
        /// An account with this id was opened with different content.
        ACCOUNT_EXISTS = "account-exists", CONFLICT, "The account exists";
    }
}

/// Why an operation on a payment or an account failed.
#[derive(Debug, thiserror::Error)]
pub enum PaymentError {
    /// A field of the request has an invalid value.
    #[error("The request is invalid: {field} {problem}.")]
    Invalid {
        /// JSON pointer to the field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such payment.
    #[error("No payment has this uuid.")]
    NotFound,
    /// The payment was settled with the opposite outcome.
    #[error(
        "The payment is already {} and stays so; compare its uuid with the wallet's entries.",
        status.as_str()
    )]
    Settled {
        /// The payment's status.
        status: Status,
    },
    /// There is no such account.
    #[error("No account has this id.")]
    AccountNotFound,
    /// The account was opened with a different currency or balance.
    #[error("An account with this id was opened with a different currency or balance.")]
    AccountExists,
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl PaymentError {
    pub(crate) fn invalid(field: &'static str, problem: impl ToString) -> Self {
        Self::Invalid {
            field,
            problem: problem.to_string(),
        }
    }
}

impl From<sqlx::Error> for PaymentError {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error.into())
    }
}

impl From<PaymentError> for Problem {
    fn from(error: PaymentError) -> Self {
        let detail = error.to_string();
        match error {
            PaymentError::Invalid { field, problem } => {
                Self::new(&INVALID_VALUE, detail).field(field, problem)
            }
            PaymentError::NotFound => Self::new(&PAYMENT_NOT_FOUND, detail),
            PaymentError::Settled { status } => {
                Self::new(&PAYMENT_SETTLED, detail).with("status_now", status.as_str())
            }
            PaymentError::AccountNotFound => Self::new(&ACCOUNT_NOT_FOUND, detail),
            PaymentError::AccountExists => {
                Self::new(&ACCOUNT_EXISTS, detail).field("/account_id", "is in use")
            }
            PaymentError::Engine(error) => error.into(),
        }
    }
}
