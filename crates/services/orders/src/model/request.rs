//! What a client asks for, in its normal form.

use postrider::{
    digest::{Digest, DigestError, canonical},
    ledger::{InvalidKey, Key},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::{OffsetDateTime, UtcOffset};
use utoipa::ToSchema;

use super::Decimal;

/// The scope of this service in the ledger.
pub const SCOPE: &str = "orders";

/// The longest account or symbol, in bytes.
const MOST_BYTES: usize = 100;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Buy.
    Buy,
    /// Sell.
    Sell,
}

/// At which price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrderType {
    /// At the market's.
    Market,
    /// At the limit price or better.
    Limit,
}

/// For how long the broker keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeInForce {
    /// To the end of the day.
    #[default]
    Day,
    /// Until cancelled.
    Gtc,
    /// Immediate, or what is left is cancelled.
    Ioc,
    /// All at once, or nothing.
    Fok,
}

/// The version of the request's form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Version {
    /// The only one so far.
    #[default]
    #[serde(rename = "1.1")]
    V1_1,
}

/// An order, as a client posts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// The version of this form.
    #[serde(default)]
    pub version: Version,
    /// One key is one order: repeat the request with the same key as often as you like.
    #[schema(example = "k-1")]
    pub idempotency_key: String,
    /// On whose account.
    #[schema(example = "A1")]
    pub account: String,
    /// What to trade.
    #[schema(example = "ACME")]
    pub symbol: String,
    /// Which way.
    pub side: Side,
    /// How much: an exact decimal above zero, as a string or a number.
    #[schema(value_type = String, example = "10")]
    pub quantity: Decimal,
    /// At which price.
    #[serde(rename = "type")]
    pub order_type: OrderType,
    /// The limit, exactly when the type is `limit`: an exact decimal above zero, as a string or a number.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "12.50")]
    pub limit_price: Option<Decimal>,
    /// For how long the broker keeps it.
    #[serde(default)]
    pub time_in_force: TimeInForce,
    /// After this the order is never sent.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    /// Whatever the client wants to find again.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub tags: Map<String, Value>,
}

/// What is wrong with a request whose form is right.
#[derive(Debug, thiserror::Error)]
pub enum Invalid {
    /// A value can't be taken.
    #[error("{field} {problem}")]
    Field {
        /// The field's place.
        field: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// The key can't be taken.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// The content has no digest.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// An order that can be accepted: checked, in normal form, with its digest.
#[derive(Debug, Clone)]
pub struct Order {
    /// Under which name the ledger knows it; the client order id at the broker.
    pub key: Key,
    /// SHA-256 of the canonical form.
    pub digest: Digest,
    /// The canonical form itself.
    pub canonical: String,
    /// After this it is never sent.
    pub expires_at: Option<OffsetDateTime>,
    /// On whose account.
    pub account: String,
    /// What is traded.
    pub symbol: String,
}

impl TryFrom<OrderRequest> for Order {
    type Error = Invalid;

    fn try_from(mut request: OrderRequest) -> Result<Self, Invalid> {
        let key = key(&request.idempotency_key)?;
        if matches!(request.idempotency_key.as_str(), "." | "..") {
            // An address can't end in it, so that neither the broker nor we could be asked for the order.
            return Err(field("/idempotency_key", "must not be `.` or `..`"));
        }
        plain("/account", &request.account)?;
        plain("/symbol", &request.symbol)?;
        match (request.order_type, &request.limit_price) {
            (OrderType::Limit, None) => {
                return Err(field("/limit_price", "is missing: a limit order needs one"));
            }
            (OrderType::Market, Some(_)) => {
                return Err(field(
                    "/limit_price",
                    "is given, and a market order has none",
                ));
            }
            (OrderType::Limit, Some(_)) | (OrderType::Market, None) => {}
        }
        // The same moment in another zone is the same order; PostgreSQL keeps microseconds.
        request.expires_at = match request.expires_at {
            Some(at) => Some(
                at.checked_to_offset(UtcOffset::UTC)
                    .and_then(|at| at.replace_nanosecond(at.microsecond() * 1_000).ok())
                    .filter(|at| (1970..=9999).contains(&at.year()))
                    .ok_or_else(|| field("/expires_at", "must be between 1970 and 9999"))?,
            ),
            None => None,
        };
        let canonical = canonical(&request)?;
        Ok(Self {
            key,
            digest: Digest::of_bytes(&canonical),
            canonical: String::from_utf8(canonical)
                .map_err(|_| field("", "has no canonical form in UTF-8"))?,
            expires_at: request.expires_at,
            account: request.account,
            symbol: request.symbol,
        })
    }
}

/// The ledger's key of an order.
pub fn key(idempotency_key: &str) -> Result<Key, InvalidKey> {
    Key::new(SCOPE, idempotency_key)
}

const fn field(field: &'static str, problem: &'static str) -> Invalid {
    Invalid::Field { field, problem }
}

fn plain(name: &'static str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() || text.len() > MOST_BYTES {
        return Err(field(name, "must have 1 to 100 bytes"));
    }
    if text.contains(char::is_control) {
        return Err(field(name, "has control characters in it"));
    }
    Ok(())
}
