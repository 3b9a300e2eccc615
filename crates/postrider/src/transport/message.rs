//! A message in transit, and its permanent id.

use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::lease::{Item, WorkTable};
use crate::{Result, failure::Failure};

/// The id of a message: globally unique, and the same at every attempt to send or deliver it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Uuid);

impl MessageId {
    /// An id that the sender has created itself, in the transaction that requested the message.
    #[must_use]
    pub const fn new(id: Uuid) -> Self {
        Self(id)
    }

    /// The id as a UUID.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MessageId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

/// Creates ids for the items of one work table of one installation.
///
/// An item's number is drawn in the business transaction, so its id is fixed there too, at no cost: 60 bits identify
/// the table and installation, 62 bits the item (a UUID of version 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    prefix: u64,
}

impl Origin {
    const READ: &str = "select id from postrider.installation";

    /// The origin of this table's messages.
    #[must_use]
    pub fn new(installation: Uuid, table: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(installation.as_bytes());
        hash.update(table.as_bytes());
        let digest = hash.finalize();
        let prefix = digest
            .iter()
            .take(8)
            .fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        Self {
            prefix: prefix >> 4,
        }
    }

    /// The origin, with the installation id that is recorded in the database.
    pub async fn load(connection: &mut PgConnection, table: &WorkTable) -> Result<Self> {
        let installation = sqlx::query_scalar(Self::READ).fetch_one(connection).await?;
        Ok(Self::new(installation, table.name))
    }

    /// The item of this message, if it comes from this origin.
    #[must_use]
    pub fn number(self, id: MessageId) -> Option<i64> {
        let low = id.0.as_u128() & u128::from(u64::MAX >> 2);
        let item = i64::try_from(low).ok()?;
        (self.mint(item) == id).then_some(item)
    }

    /// Common prefix of all ids of this origin: 16 hexadecimal digits.
    #[must_use]
    pub fn beginning(self) -> String {
        format!("{:016x}", self.mint(0).0.as_u64_pair().0)
    }

    /// The id of this item's message.
    #[must_use]
    pub const fn mint(self, item: i64) -> MessageId {
        let high = (self.prefix >> 12) << 16 | (self.prefix & 0xfff);
        let low = item.unsigned_abs() & (u64::MAX >> 2);
        let bits = (high as u128) << 64 | low as u128;
        let builder = uuid::Builder::from_u128(bits)
            .with_variant(uuid::Variant::RFC4122)
            .with_version(uuid::Version::Custom);
        MessageId(builder.into_uuid())
    }
}

/// A message as transports see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Id.
    pub id: MessageId,
    /// Topic; every group that subscribed to it gets the message.
    pub topic: Box<str>,
    /// Ordering key: messages of one key stay in order.
    pub key: Option<Box<str>>,
    /// JSON text. From other senders it may be anything, which [`Message::read`] checks.
    pub payload: Box<str>,
    /// Headers, as the text of a JSON object.
    pub headers: Option<Box<str>>,
    /// W3C traceparent of the request that caused this message.
    pub trace: Option<Box<str>>,
}

impl Message {
    /// Creates a message without key, headers and trace context.
    #[must_use]
    pub fn new(id: MessageId, topic: impl Into<Box<str>>, payload: impl Into<Box<str>>) -> Self {
        Self {
            id,
            topic: topic.into(),
            key: None,
            payload: payload.into(),
            headers: None,
            trace: None,
        }
    }

    /// Sets the ordering key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Box<str>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the headers, the text of a JSON object.
    #[must_use]
    pub fn headers(mut self, headers: impl Into<Box<str>>) -> Self {
        self.headers = Some(headers.into());
        self
    }

    /// Sets the W3C traceparent.
    #[must_use]
    pub fn trace(mut self, trace: impl Into<Box<str>>) -> Self {
        self.trace = Some(trace.into());
        self
    }

    /// The message of an outbox item.
    #[must_use]
    pub fn from_item(origin: Origin, item: &Item) -> Self {
        Self {
            id: origin.mint(item.id),
            topic: item.kind.clone(),
            key: item.ordering_key.clone(),
            payload: item.payload.clone(),
            headers: item.headers.clone(),
            trace: item.trace.clone(),
        }
    }

    /// Deserializes the payload; a failure is permanent, so the message becomes a dead letter.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.payload)
            .map_err(|error| Failure::from_error("UNREADABLE_PAYLOAD", &error))
    }

    /// The text of this header; a value that isn't text is returned as JSON.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<String> {
        let headers: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(self.headers.as_deref()?).ok()?;
        headers.get(name).map(|value| match value {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    /// Approximate size in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        let text = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        size_of::<Self>()
            + self.topic.len()
            + self.payload.len()
            + text(&self.key)
            + text(&self.headers)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ids_differ_by_installation_table_and_item_and_never_change() {
        let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let id = Origin::new(ours, "postrider.outbox").mint(7);
        assert_eq!(id, Origin::new(ours, "postrider.outbox").mint(7));
        assert_ne!(id, Origin::new(ours, "postrider.outbox").mint(8));
        assert_ne!(id, Origin::new(ours, "payments.outbox").mint(7));
        assert_ne!(id, Origin::new(theirs, "postrider.outbox").mint(7));
        assert_eq!(id.uuid().get_version_num(), 8);
        assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
    }

    #[test]
    fn no_bit_of_the_origin_or_the_item_is_lost() {
        let origin = Origin {
            prefix: (1 << 60) - 1,
        };
        let all = origin.mint((1 << 62) - 1);
        assert_eq!(
            all.uuid().to_string(),
            "ffffffff-ffff-8fff-bfff-ffffffffffff"
        );
        for bit in 0..60 {
            assert_ne!(
                Origin { prefix: 1 << bit }.mint(0),
                Origin { prefix: 0 }.mint(0)
            );
        }
        for bit in 0..62 {
            assert_ne!(origin.mint(1 << bit), origin.mint(0));
        }
    }

    #[test]
    fn headers_are_read_by_name() {
        let message =
            Message::new(MessageId::new(Uuid::nil()), "t", "1").headers(r#"{"a":"x","b":7}"#);
        assert_eq!(message.header("a").as_deref(), Some("x"));
        assert_eq!(message.header("b").as_deref(), Some("7"));
        assert_eq!(message.header("c"), None);
    }
}
