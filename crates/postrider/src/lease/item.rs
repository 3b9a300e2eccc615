//! What a claim hands out: the item's content, and the lease that allows its holder to settle it.

use sqlx::error::BoxDynError;
use sqlx::postgres::PgRow;
use sqlx::types::time::OffsetDateTime;
use sqlx::{Row, ValueRef};

use super::ctid::Ctid;
use super::{LostLease, WorkTable};
use crate::Result;

/// The right to settle one item, for a while.
///
/// Not `Clone`, and consumed by settling: whoever has none can't settle. Dropping it is safe: the item is found again
/// when the lease has run out.
#[derive(Debug)]
pub struct Lease {
    pub(crate) id: i64,
    pub(crate) fence: i64,
    /// Where the row lay when it was claimed.
    pub(super) place: Ctid,
    pub(crate) attempts: i32,
    pub(crate) ordering_key: Option<Box<str>>,
}

impl Lease {
    /// The item's id.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.id
    }

    /// Failed attempts before this one.
    #[must_use]
    pub const fn attempts(&self) -> i32 {
        self.attempts
    }

    /// The value that says this lease is over.
    #[must_use]
    pub const fn lost(&self, table: &'static WorkTable) -> LostLease {
        LostLease {
            table: table.name,
            id: self.id,
        }
    }
}

/// The payload is not what the handler reads: no repetition will help, hence a dead letter.
#[derive(Debug, thiserror::Error)]
#[error("the payload is not what its handler reads: {0}")]
pub struct UnreadablePayload(#[source] serde_json::Error);

/// One item of work, as its handler sees it.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its id in the work table; the same on every attempt, hence fit as an idempotency key.
    pub id: i64,
    /// What kind of work it is; empty where the table has one kind only.
    pub kind: Box<str>,
    /// The content, as JSON text.
    pub payload: Box<str>,
    /// Headers, as the text of a JSON object.
    pub headers: Option<Box<str>>,
    /// The W3C traceparent of whoever asked for this.
    pub trace: Option<Box<str>>,
    /// Items of one key come one after the other.
    pub ordering_key: Option<Box<str>>,
    /// When it was due.
    pub due: OffsetDateTime,
    /// Failed attempts before this one.
    pub attempts: i32,
    /// How often a worker was lost over it.
    pub losses: i32,
}

impl Item {
    /// The payload as a value of the handler's own type.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, UnreadablePayload> {
        serde_json::from_str(&self.payload).map_err(UnreadablePayload)
    }

    /// About how many bytes of memory it holds.
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
            place: row.try_get(9)?,
            attempts: item.attempts,
            ordering_key: item.ordering_key.clone(),
        };
        Ok((lease, item))
    }
}

/// The text of a `json`, `jsonb` or `text` value, whichever the descriptor's expression gives.
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
    // `jsonb` has its version in front, which no JSON text begins with.
    let bytes = bytes.strip_prefix(&[1]).unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| unreadable(error.into()))?;
    Ok(Some(boxed(text)))
}

fn boxed(text: &str) -> Box<str> {
    text.into()
}
