//! What a client asks for, in its normal form.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Amount, Currency, Money, TraceContext};

/// The longest description, in bytes.
const LONGEST_DESCRIPTION: usize = 1_000;

/// A payment, as a client posts it.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PaymentRequest {
    /// One uuid is one payment: repeat the request with the same one as often as you like. Left out, one is made.
    #[serde(default)]
    pub uuid: Option<Uuid>,
    /// The account to deduct from.
    #[schema(example = "acc-1")]
    pub account_id: String,
    /// How much: an exact decimal above zero, as a string or a number, no finer than its currency.
    #[schema(value_type = String, example = "12.50")]
    pub amount: Amount,
    /// The currency's three letters.
    #[schema(example = "USD")]
    pub currency: String,
    /// Whatever helps to recognise it.
    #[serde(default)]
    pub description: Option<String>,
}

/// A payment that may be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payment {
    /// Its identity, on both sides and for ever.
    pub uuid: Uuid,
    /// The account.
    pub account_id: String,
    /// How much.
    pub money: Money,
    /// Whatever helps to recognise it.
    pub description: Option<String>,
    /// The trace that it is part of. Not of its content: a repetition may come with another, and the first stays.
    pub trace: Option<TraceContext>,
}

/// What the wallet is told to do: the content of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Which payment.
    pub uuid: Uuid,
    /// The account to deduct from.
    pub account_id: String,
    /// How much, as text.
    pub amount: String,
    /// Of which currency.
    pub currency: String,
}

/// What is wrong with a request whose form is right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct Invalid {
    /// The field's place.
    pub field: &'static str,
    /// What is wrong.
    pub problem: String,
}

impl Invalid {
    fn new(field: &'static str, problem: impl ToString) -> Self {
        Self {
            field,
            problem: problem.to_string(),
        }
    }
}

impl TryFrom<PaymentRequest> for Payment {
    type Error = Invalid;

    fn try_from(request: PaymentRequest) -> Result<Self, Invalid> {
        let money = money(request.amount, &request.currency, "/amount")?;
        if money.minor == 0 {
            return Err(Invalid::new("/amount", "must be more than zero"));
        }
        if let Some(text) = &request.description
            && text.len() > LONGEST_DESCRIPTION
        {
            return Err(Invalid::new("/description", "is longer than 1000 bytes"));
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
    pub fn notice(&self) -> Notice {
        Notice {
            uuid: self.uuid,
            account_id: self.account_id.clone(),
            amount: self.money.to_string(),
            currency: self.money.currency.to_string(),
        }
    }
}

/// An exact amount of a currency that exists.
pub(crate) fn money(amount: Amount, currency: &str, field: &'static str) -> Result<Money, Invalid> {
    let currency = Currency::of(currency).ok_or_else(|| {
        Invalid::new(
            "/currency",
            "is no active ISO 4217 code: write three capital letters such as USD",
        )
    })?;
    Money::new(amount, currency).map_err(|error| Invalid::new(field, error))
}

/// An account's id: letters, digits, dot, underscore, hyphen.
pub(crate) fn account_id(text: String) -> Result<String, Invalid> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let begins_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if text.len() > 100 || !begins_well || !text.chars().all(fits) {
        return Err(Invalid::new(
            "/account_id",
            "must be 1 to 100 letters, digits and . _ -, beginning with a letter or digit",
        ));
    }
    Ok(text)
}
