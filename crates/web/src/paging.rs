//! Cursor pagination: an opaque cursor says where the next page starts.
//!
//! A cursor contains the sort key of the last item, so pages neither skip nor repeat items when rows are inserted or deleted, and
//! page 1000 costs as much as page 1. It also has a version, its list's id and a checksum: a truncated or modified cursor, or one
//! of another list, is rejected. The same list of another parent or with another filter is another list ([`list_id`]).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::{DeserializeOwned, Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use crate::error_code::codes;
use crate::json::{self, Limits};
use crate::problem::Problem;

const VERSION: u8 = 1;
const CHECK_BYTES: usize = 6;
const MAX_LENGTH: usize = 2048;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// The items, in the list's order.
    pub items: Vec<T>,
    /// Send this as `cursor` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page from up to `limit + 1` rows: the extra row shows that there is a next page.
    ///
    /// # Errors
    /// If the key can't be serialized, which is a bug.
    pub fn from_rows<K: Serialize>(
        mut rows: Vec<T>,
        limit: Limit,
        list: &str,
        key: impl FnOnce(&T) -> K,
    ) -> Result<Self, Problem> {
        let more = rows.len() > limit.rows();
        rows.truncate(limit.rows());
        let last = rows.last().filter(|_| more);
        let next_cursor = last
            .map(|last| Cursor::encode(list, &key(last)))
            .transpose()?;
        Ok(Self {
            items: rows,
            next_cursor: next_cursor.map(|cursor| cursor.0),
        })
    }

    /// Maps each item.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(change).collect(),
            next_cursor: self.next_cursor,
        }
    }
}

/// The id, in cursors, of a list that is restricted to `part`: its parent, its filter.
///
/// # Errors
/// If `part` can't be serialized, which is a bug.
pub fn list_id(name: &str, part: &impl Serialize) -> Result<String, Problem> {
    let part = serde_json::to_vec(part).map_err(Problem::internal)?;
    let digest = URL_SAFE_NO_PAD.encode(checksum(&part));
    Ok(format!("{name} {digest}"))
}

/// Where a page starts, as the client sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Cursor(String);

#[derive(Serialize, Deserialize)]
struct Position<'a, K> {
    v: u8,
    list: std::borrow::Cow<'a, str>,
    key: K,
}

impl Cursor {
    /// The cursor after the item with this sort key.
    ///
    /// # Errors
    /// If the key can't be serialized, which is a bug.
    pub fn encode<K: Serialize>(list: &str, key: &K) -> Result<Self, Problem> {
        let position = Position {
            v: VERSION,
            list: list.into(),
            key,
        };
        let json = serde_json::to_vec(&position).map_err(Problem::internal)?;
        let mut bytes = checksum(&json).to_vec();
        bytes.extend_from_slice(&json);
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The sort key in the cursor.
    ///
    /// # Errors
    /// 400 if the cursor is not one of this list.
    pub fn decode<K: DeserializeOwned>(&self, list: &str) -> Result<K, Problem> {
        self.read(list).ok_or_else(|| {
            Problem::new(
                &codes::INVALID_CURSOR,
                "The cursor is not from this list: send `next_cursor` of the previous page unchanged and with the same filters, or omit it to start over.",
            )
            .field("cursor", "invalid")
        })
    }

    fn read<K: DeserializeOwned>(&self, list: &str) -> Option<K> {
        if self.0.len() > MAX_LENGTH {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(&self.0).ok()?;
        let (sum, json) = bytes.split_at_checked(CHECK_BYTES)?;
        if sum != checksum(json) {
            return None;
        }
        let position: Position<'_, K> = json::parse(json, &Limits::default()).ok()?;
        (position.v == VERSION && position.list == list).then_some(position.key)
    }
}

fn checksum(json: &[u8]) -> [u8; CHECK_BYTES] {
    let digest = Sha256::digest(json);
    let mut sum = [0; CHECK_BYTES];
    sum.copy_from_slice(&digest[..CHECK_BYTES]);
    sum
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Number of items per page: 1 to 500, by default 50.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(value_type = u16, minimum = 1, maximum = 500, default = 50)]
pub struct Limit(u16);

impl Limit {
    /// Maximum page size.
    pub const MAX: u16 = 500;

    /// A limit, if it's in range.
    #[must_use]
    pub fn new(items: u64) -> Option<Self> {
        let items = u16::try_from(items).ok()?;
        (1..=Self::MAX).contains(&items).then_some(Self(items))
    }

    /// Number of items on the page.
    #[must_use]
    pub fn rows(self) -> usize {
        usize::from(self.0)
    }

    /// Number of rows to fetch: one more than the page has, to see whether there is a next page.
    #[must_use]
    pub fn rows_to_fetch(self) -> i64 {
        i64::from(self.0) + 1
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self(50)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = u64::deserialize(deserializer)?;
        Limit::new(items).ok_or_else(|| {
            D::Error::invalid_value(Unexpected::Unsigned(items), &"a number from 1 to 500")
        })
    }
}
