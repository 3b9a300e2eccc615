//! Order requests: validation and normal form.

use postrider::{
    digest::{Digest, DigestError, canonical},
    ledger::{InvalidKey, Key},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::{OffsetDateTime, UtcOffset};
use utoipa::ToSchema;

use super::PositiveDecimal;

/// This service's scope in the ledger.
pub const SCOPE: &str = "orders";

/// Maximum length of an account or symbol, in bytes.
const MAX_BYTES: usize = 100;

/// Buy or sell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Buy.
    Buy,
    /// Sell.
    Sell,
}

/// Market or limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OrderType {
    /// At the market price.
    Market,
    /// At the limit price or better.
    Limit,
}

/// How long the order stays in force at the broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeInForce {
    /// Until the end of the day.
    #[default]
    Day,
    /// Good till cancelled.
    Gtc,
    /// Immediate or cancel.
    Ioc,
    /// Fill or kill.
    Fok,
}

/// The request's schema version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Version {
    /// The current version.
    #[default]
    #[serde(rename = "1.1")]
    V1_1,
}

/// An order as a client posts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderRequest {
    /// Schema version of the request.
    #[serde(default)]
    pub version: Version,
    /// One key is one order: the request can be repeated safely under the same key.
    #[schema(example = "k-1")]
    pub idempotency_key: String,
    /// The account.
    #[schema(example = "A1")]
    pub account: String,
    /// The symbol to trade.
    #[schema(example = "ACME")]
    pub symbol: String,
    /// Buy or sell.
    pub side: Side,
    /// An exact decimal greater than zero, as a string or a number.
    #[schema(value_type = String, example = "10")]
    pub quantity: PositiveDecimal,
    /// Market or limit.
    #[serde(rename = "type")]
    pub order_type: OrderType,
    /// Required if, and only if, the type is `limit`: an exact decimal greater than zero, as a string or a number.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "12.50")]
    pub limit_price: Option<PositiveDecimal>,
    /// How long the order stays in force at the broker.
    #[serde(default)]
    pub time_in_force: TimeInForce,
    /// The order is never sent after this time.
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    /// Arbitrary metadata of the client.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub tags: Map<String, Value>,
}

/// Why a well-formed request is not a valid order.
#[derive(Debug, thiserror::Error)]
pub enum InvalidOrder {
    /// A field has an invalid value.
    #[error("{field} {problem}")]
    Field {
        /// JSON pointer to the field.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The idempotency key is invalid.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// The request has no canonical form.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// A validated order in normal form, with its digest.
#[derive(Debug, Clone)]
pub struct Order {
    /// The order's key in the ledger; also the client order id at the broker.
    pub key: Key,
    /// SHA-256 of the canonical form.
    pub digest: Digest,
    /// The canonical form.
    pub canonical: String,
    /// The order is never sent after this time.
    pub expires_at: Option<OffsetDateTime>,
    /// The account.
    pub account: String,
    /// The symbol.
    pub symbol: String,
}

impl TryFrom<OrderRequest> for Order {
    type Error = InvalidOrder;

    fn try_from(mut request: OrderRequest) -> Result<Self, InvalidOrder> {
        let key = key(&request.idempotency_key)?;
        if matches!(request.idempotency_key.as_str(), "." | "..") {
            // A URL path can't end in either, so the order could not be looked up at the broker or here.
            return Err(field("/idempotency_key", "must not be `.` or `..`"));
        }
        check_text("/account", &request.account)?;
        check_text("/symbol", &request.symbol)?;
        match (request.order_type, &request.limit_price) {
            (OrderType::Limit, None) => {
                return Err(field("/limit_price", "is required for a limit order"));
            }
            (OrderType::Market, Some(_)) => {
                return Err(field("/limit_price", "is not allowed for a market order"));
            }
            (OrderType::Limit, Some(_)) | (OrderType::Market, None) => {}
        }
        // The same instant in another time zone is the same order; PostgreSQL stores microseconds.
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
                .map_err(|_| field("", "has no UTF-8 canonical form"))?,
            expires_at: request.expires_at,
            account: request.account,
            symbol: request.symbol,
        })
    }
}

/// The ledger key of an idempotency key.
pub fn key(idempotency_key: &str) -> Result<Key, InvalidKey> {
    Key::new(SCOPE, idempotency_key)
}

const fn field(field: &'static str, problem: &'static str) -> InvalidOrder {
    InvalidOrder::Field { field, problem }
}

fn check_text(name: &'static str, text: &str) -> Result<(), InvalidOrder> {
    if text.is_empty() || text.len() > MAX_BYTES {
        return Err(field(name, "must be 1 to 100 bytes long"));
    }
    if text.contains(char::is_control) {
        return Err(field(name, "must not contain control characters"));
    }
    Ok(())
}
