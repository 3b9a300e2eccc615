//! What a claim returns: the item's content, and the lease that allows settling it.

use sqlx::error::BoxDynError;
use sqlx::postgres::PgRow;
use sqlx::types::time::OffsetDateTime;
use sqlx::{Row, ValueRef};

use super::ctid::Ctid;
use super::{LostLease, WorkTable};
use crate::Result;

/// The right to settle one item, for a limited time.
///
/// Not `Clone`, and consumed by settling: without a lease there is no settling. Dropping it is safe: the item is found
/// again when the lease expires.
#[derive(Debug)]
pub struct Lease {
    pub(crate) id: i64,
    pub(crate) fence: i64,
    /// The row's position when it was claimed.
    pub(super) ctid: Ctid,
    pub(crate) attempts: i32,
    pub(crate) ordering_key: Option<Box<str>>,
}

impl Lease {
    /// The item's id.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.id
    }

    /// Number of failed attempts before this one.
    #[must_use]
    pub const fn attempts(&self) -> i32 {
        self.attempts
    }

    /// The error for this lease once it is lost.
    #[must_use]
    pub const fn lost(&self, table: &'static WorkTable) -> LostLease {
        LostLease {
            table: table.name,
            id: self.id,
        }
    }
}

/// The payload doesn't match the handler's type. Retrying won't help, so the item becomes a dead letter.
#[derive(Debug, thiserror::Error)]
#[error("the payload does not match the handler's type: {0}")]
pub struct UnreadablePayload(#[source] serde_json::Error);

/// An item of work, as its handler sees it.
#[derive(Debug, Clone)]
pub struct Item {
    /// Id in the work table. It is the same on every attempt, so it can serve as an idempotency key.
    pub id: i64,
    /// Kind of work; empty if the table has a single kind.
    pub kind: Box<str>,
    /// Payload, as JSON text.
    pub payload: Box<str>,
    /// Headers, as the text of a JSON object.
    pub headers: Option<Box<str>>,
    /// W3C traceparent of the request that caused this item.
    pub trace: Option<Box<str>>,
    /// Ordering key: items with the same key run one after the other.
    pub ordering_key: Option<Box<str>>,
    /// When the item was due.
    pub due: OffsetDateTime,
    /// Number of failed attempts before this one.
    pub attempts: i32,
    /// Number of workers lost while running it.
    pub losses: i32,
}

impl Item {
    /// Deserializes the payload.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, UnreadablePayload> {
        serde_json::from_str(&self.payload).map_err(UnreadablePayload)
    }

    /// Approximate memory use in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>() + self.kind.len() + self.payload.len() + text(&self.headers)
    }

    /// Reads a row of the claim's `returning` list, which is in this order.
    pub(super) fn from_row(row: &PgRow, fence: i64) -> Result<(Lease, Self), sqlx::Error> {
        let item = Self {
            id: row.try_get(0)?,
            due: row.try_get(1)?,
            attempts: row.try_get(2)?,
            losses: row.try_get(3)?,
            kind: boxed(row.try_get::<&str, _>(4)?),
            payload: json_text(row, 5)?.unwrap_or_else(|| boxed("null")),
            headers: json_text(row, 6)?,
            trace: row.try_get::<Option<&str>, _>(7)?.map(boxed),
            ordering_key: row.try_get::<Option<&str>, _>(8)?.map(boxed),
        };
        let lease = Lease {
            id: item.id,
            fence,
            ctid: row.try_get(9)?,
            attempts: item.attempts,
            ordering_key: item.ordering_key.clone(),
        };
        Ok((lease, item))
    }
}

/// The text of a `json`, `jsonb` or `text` value, whatever the descriptor's expression returns.
fn json_text(row: &PgRow, index: usize) -> Result<Option<Box<str>>, sqlx::Error> {
    let value = row.try_get_raw(index)?;
    if value.is_null() {
        return Ok(None);
    }
    let unreadable = |source: BoxDynError| sqlx::Error::ColumnDecode {
        index: index.to_string(),
        source,
    };
    let bytes = value.as_bytes().map_err(unreadable)?;
    // `jsonb` starts with a version byte, which no JSON text does.
    let bytes = bytes.strip_prefix(&[1]).unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| unreadable(error.into()))?;
    Ok(Some(boxed(text)))
}

fn boxed(text: &str) -> Box<str> {
    text.into()
}
