//! A message beside its payload: what goes into a broker's headers, and how it is read again.
//!
//! Everybody else can read it: `traceparent` is W3C's, texts among the headers are headers, the payload is the payload. What
//! a header can't carry (numbers, nested values, odd names) goes as JSON in one header of ours. From senders who know nothing
//! of this anything may come: whatever it is becomes a message, so that it is dealt with by a handler or as a dead
//! letter, and never blocks those behind it.

use postrider::transport::{Message, MessageId};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::hash;

/// The message's id, where the broker has no place of its own for it.
pub(crate) const ID: &str = "message-id";
const TRACE: &str = "traceparent";
const TOPIC: &str = "postrider-topic";
/// The ordering key as a JSON text, where the broker has no place of its own for it.
pub(crate) const KEY: &str = "postrider-key";
const REST: &str = "postrider-headers";

/// No key is longer, here and in the outbox.
const MOST_KEY: usize = 200;

/// The headers of a message: names and values without control characters.
pub(crate) fn fields(message: &Message) -> Vec<(String, String)> {
    let mut fields = vec![(TOPIC.to_owned(), message.topic.to_string())];
    if let Some(trace) = &message.trace {
        fields.push((TRACE.to_owned(), trace.to_string()));
    }
    let headers = message.headers.as_deref().unwrap_or("{}");
    let headers: Map<String, Value> = serde_json::from_str(headers).unwrap_or_default();
    let mut rest = Map::new();
    for (name, value) in headers {
        match value {
            Value::String(text) if is_name(&name) && is_text(&text) => fields.push((name, text)),
            other => {
                rest.insert(name, other);
            }
        }
    }
    if !rest.is_empty() {
        fields.push((REST.to_owned(), Value::Object(rest).to_string()));
    }
    fields
}

fn is_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let reserved = ["postrider-", "nats-", "x-"];
    (1..=100).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && ![ID, TRACE].contains(&lower.as_str())
        && !reserved.iter().any(|prefix| lower.starts_with(prefix))
}

/// Brokers cut blanks at the ends, and lines end a header.
fn is_text(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

/// What came from a broker.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    /// The id that its sender gave it.
    pub id: Option<String>,
    /// Where it lies in the broker: the id of a message whose sender gave none.
    pub place: [&'a str; 3],
    /// The topic, if no header says otherwise.
    pub topic: &'a str,
    /// The ordering key.
    pub key: Option<String>,
    /// The body.
    pub payload: &'a [u8],
    /// The headers.
    pub fields: Vec<(String, String)>,
}

impl Arrival<'_> {
    /// As a message that the database can store, whatever it is.
    pub fn open(self) -> Message {
        let mut message = Message::new(
            MessageId::new(self.identity()),
            storable(self.topic),
            body(self.payload),
        );
        message.key = self.key.map(|key| ordering_key(&key));
        let mut headers = Map::new();
        for (name, value) in self.fields {
            match name.as_str() {
                TOPIC => message.topic = storable(&value),
                TRACE => message.trace = Some(storable(&value)),
                KEY => {
                    message.key = serde_json::from_str::<String>(&value)
                        .ok()
                        .map(|key| ordering_key(&key));
                }
                REST => headers.extend(
                    serde_json::from_str::<Map<String, Value>>(&value.replace("\\u0000", ""))
                        .unwrap_or_default(),
                ),
                ID => {}
                _ => {
                    let value = Value::String(storable(&value).into());
                    headers.insert(storable(&name).into(), value);
                }
            }
        }
        if !headers.is_empty() {
            message.headers = Some(Value::Object(headers).to_string().into());
        }
        message
    }

    fn identity(&self) -> Uuid {
        let given = self.id.as_deref().or_else(|| {
            let field = self.fields.iter().find(|(name, _)| name == ID)?;
            Some(&*field.1)
        });
        match given {
            Some(text) => text.parse().unwrap_or_else(|_| hash(&[text])),
            None => hash(&self.place),
        }
    }
}

/// JSON as it is; anything else as a JSON text of it, which a handler that wants JSON finds unreadable.
fn body(payload: &[u8]) -> Box<str> {
    match std::str::from_utf8(payload) {
        Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => text.into(),
        _ if payload.is_empty() => "null".into(),
        _ => as_text(&String::from_utf8_lossy(payload)),
    }
}

pub(super) fn as_text(payload: &str) -> Box<str> {
    Value::from(payload.replace('\0', "\u{fffd}"))
        .to_string()
        .into()
}

/// A key that is too long still keeps its messages in order.
fn ordering_key(key: &str) -> Box<str> {
    if key.is_empty() || key.chars().count() > MOST_KEY {
        return hash(&[key]).to_string().into();
    }
    storable(key)
}

/// PostgreSQL stores no NUL.
fn storable(text: &str) -> Box<str> {
    text.replace('\0', "\u{fffd}").into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn arrival<'a>(payload: &'a [u8], fields: Vec<(String, String)>) -> Arrival<'a> {
        Arrival {
            id: None,
            place: ["topic", "0", "7"],
            topic: "topic",
            key: None,
            payload,
            fields,
        }
    }

    #[test]
    fn headers_come_back_as_they_were() {
        let headers = r#"{"tenant":"a","retries":3,"odd name":"x","line":"a\nb","postrider-key":"mine","deep":{"a":[1]}}"#;
        let sent = Message::new(MessageId::new(Uuid::nil()), "t:1", "{}")
            .headers(headers)
            .trace("00-1");
        let came = arrival(b"{}", fields(&sent)).open();
        assert_eq!(came.topic, sent.topic);
        assert_eq!(came.trace, sent.trace);
        let read =
            |m: &Message| -> Value { serde_json::from_str(m.headers.as_deref().unwrap()).unwrap() };
        assert_eq!(read(&came), read(&sent));
        assert_eq!(came.key, None);
    }

    #[test]
    fn anything_at_all_becomes_a_message() {
        assert_eq!(&*arrival(b"", vec![]).open().payload, "null");
        assert_eq!(
            &*arrival(b"not json", vec![]).open().payload,
            "\"not json\""
        );
        let odd = arrival(b"\xff\0\x01", vec![("a\0".into(), "b\0".into())]).open();
        assert!(serde_json::from_str::<String>(&odd.payload).is_ok());
        assert!(!odd.headers.unwrap().contains("\\u0000"));
        let mut long = arrival(b"1", vec![]);
        long.key = Some("k".repeat(5_000));
        assert!(long.open().key.unwrap().len() <= MOST_KEY);
    }

    #[test]
    fn a_message_without_an_id_has_one_that_a_redelivery_keeps() {
        let id = arrival(b"1", vec![]).open().id;
        assert_eq!(id, arrival(b"1", vec![]).open().id);
        let named = arrival(b"1", vec![(ID.into(), Uuid::nil().to_string())]).open();
        assert_eq!(named.id.uuid(), Uuid::nil());
    }
}
