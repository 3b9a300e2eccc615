//! Payment requests: validation and normal form.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Amount, Currency, Money, TraceContext};
use crate::PaymentError;

/// Maximum length of a description, in bytes.
const MAX_DESCRIPTION: usize = 1_000;

/// A payment as a client posts it.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PaymentRequest {
    /// One uuid is one payment: the request can be repeated safely under the same uuid. Generated if absent.
    #[serde(default)]
    pub uuid: Option<Uuid>,
    /// The account to deduct from.
    #[schema(example = "acc-1")]
    pub account_id: String,
    /// An exact decimal greater than zero, as a string or a number, with no more decimal places than its currency.
    #[schema(value_type = String, example = "12.50")]
    pub amount: Amount,
    /// ISO 4217 currency code.
    #[schema(example = "USD")]
    pub currency: String,
    /// The client's description.
    #[serde(default)]
    pub description: Option<String>,
}

/// A validated payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// The payment's identity on both sides.
    pub uuid: Uuid,
    /// The account to deduct from.
    pub account_id: String,
    /// The amount.
    pub money: Money,
    /// The client's description.
    pub description: Option<String>,
    /// The trace context. Not part of the content: a repetition may carry a different one, and the first is kept.
    pub trace: Option<TraceContext>,
}

/// The message to the wallet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentMessage {
    /// The payment's uuid.
    pub uuid: Uuid,
    /// The account to deduct from.
    pub account_id: String,
    /// The amount as decimal text.
    pub amount: String,
    /// The currency code.
    pub currency: String,
}

impl TryFrom<PaymentRequest> for Payment {
    type Error = PaymentError;

    fn try_from(request: PaymentRequest) -> Result<Self, PaymentError> {
        let money = money(request.amount, &request.currency, "/amount")?;
        if money.minor == 0 {
            return Err(PaymentError::invalid(
                "/amount",
                "must be greater than zero",
            ));
        }
        if let Some(text) = &request.description
            && text.len() > MAX_DESCRIPTION
        {
            return Err(PaymentError::invalid(
                "/description",
                "is longer than 1000 bytes",
            ));
        }
        Ok(Self {
            uuid: request.uuid.unwrap_or_else(Uuid::now_v7),
            account_id: account_id(request.account_id)?,
            money,
            description: request.description,
            trace: None,
        })
    }
}

impl Payment {
    /// The message to the wallet.
    #[must_use]
    pub fn message(&self) -> PaymentMessage {
        PaymentMessage {
            uuid: self.uuid,
            account_id: self.account_id.clone(),
            amount: self.money.to_string(),
            currency: self.money.currency.to_string(),
        }
    }
}

/// An exact amount of a known currency.
pub(crate) fn money(
    amount: Amount,
    currency: &str,
    field: &'static str,
) -> Result<Money, PaymentError> {
    let currency = Currency::new(currency).ok_or_else(|| {
        PaymentError::invalid(
            "/currency",
            "is not an active ISO 4217 code: use three capital letters such as USD",
        )
    })?;
    Money::new(amount, currency).map_err(|error| PaymentError::invalid(field, error))
}

/// An account's id: letters, digits, dot, underscore, hyphen.
pub(crate) fn account_id(text: String) -> Result<String, PaymentError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if text.len() > 100 || !starts_well || !text.chars().all(is_allowed) {
        return Err(PaymentError::invalid(
            "/account_id",
            "must be 1 to 100 letters, digits or . _ - and start with a letter or digit",
        ));
    }
    Ok(text)
}
