//! A message's headers at a broker, and how an incoming message is read.
//!
//! Any other client can read them: `traceparent` is W3C's, string headers are plain headers, the payload is the payload. What a
//! plain header can't carry (numbers, nested values, unusual names) travels as JSON in a header of ours. Other senders may
//! send anything: whatever it is becomes a message, so that a handler deals with it or it becomes a dead letter, and it
//! never blocks the messages behind it.

use postrider::transport::{Message, MessageId};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::stable_id;

/// The message's id, where the broker has no field for it.
pub(crate) const ID: &str = "message-id";
const TRACE: &str = "traceparent";
const TOPIC: &str = "postrider-topic";
/// The ordering key as a JSON string, where the broker has no field for it.
pub(crate) const KEY: &str = "postrider-key";
const OTHER_HEADERS: &str = "postrider-headers";

/// Maximum length of an ordering key in characters, as in the outbox.
const MAX_KEY_LENGTH: usize = 200;

/// The headers to send with a message; neither names nor values have control characters.
pub(crate) fn encode_headers(message: &Message) -> Vec<(String, String)> {
    let mut headers = vec![(TOPIC.to_owned(), message.topic.to_string())];
    if let Some(trace) = &message.trace {
        headers.push((TRACE.to_owned(), trace.to_string()));
    }
    let own = message.headers.as_deref().unwrap_or("{}");
    let own: Map<String, Value> = serde_json::from_str(own).unwrap_or_default();
    let mut others = Map::new();
    for (name, value) in own {
        match value {
            Value::String(text) if is_plain_name(&name) && is_plain_text(&text) => {
                headers.push((name, text));
            }
            other => {
                others.insert(name, other);
            }
        }
    }
    if !others.is_empty() {
        headers.push((OTHER_HEADERS.to_owned(), Value::Object(others).to_string()));
    }
    headers
}

fn is_plain_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let reserved = ["postrider-", "nats-", "x-"];
    (1..=100).contains(&name.len())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && ![ID, TRACE].contains(&lower.as_str())
        && !reserved.iter().any(|prefix| lower.starts_with(prefix))
}

/// Brokers trim whitespace, and a line break ends a header.
fn is_plain_text(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

/// What a broker delivered.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    /// The id that the sender set.
    pub id: Option<String>,
    /// Its position at the broker, from which a message without an id gets a stable one.
    pub position: [&'a str; 3],
    /// The topic, if no header says otherwise.
    pub topic: &'a str,
    /// The ordering key.
    pub key: Option<String>,
    /// The body.
    pub payload: &'a [u8],
    /// The headers.
    pub headers: Vec<(String, String)>,
}

impl Incoming<'_> {
    /// A message that the database can store, whatever was delivered.
    pub fn into_message(self) -> Message {
        let mut message = Message::new(
            MessageId::new(self.message_id()),
            storable(self.topic),
            body(self.payload),
        );
        message.key = self.key.map(|key| ordering_key(&key));
        let mut headers = Map::new();
        for (name, value) in self.headers {
            match name.as_str() {
                TOPIC => message.topic = storable(&value),
                TRACE => message.trace = Some(storable(&value)),
                KEY => {
                    message.key = serde_json::from_str::<String>(&value)
                        .ok()
                        .map(|key| ordering_key(&key));
                }
                OTHER_HEADERS => headers.extend(
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

    fn message_id(&self) -> Uuid {
        let given = self.id.as_deref().or_else(|| {
            let header = self.headers.iter().find(|(name, _)| name == ID)?;
            Some(&*header.1)
        });
        match given {
            Some(text) => text.parse().unwrap_or_else(|_| stable_id(&[text])),
            None => stable_id(&self.position),
        }
    }
}

/// JSON unchanged; anything else as a JSON string, which a handler that expects an object rejects.
fn body(payload: &[u8]) -> Box<str> {
    match std::str::from_utf8(payload) {
        Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => text.into(),
        _ if payload.is_empty() => "null".into(),
        _ => json_string(&String::from_utf8_lossy(payload)),
    }
}

pub(super) fn json_string(payload: &str) -> Box<str> {
    Value::from(payload.replace('\0', "\u{fffd}"))
        .to_string()
        .into()
}

/// A key that is empty or too long is replaced by its hash, which keeps its messages in order too.
fn ordering_key(key: &str) -> Box<str> {
    if key.is_empty() || key.chars().count() > MAX_KEY_LENGTH {
        return stable_id(&[key]).to_string().into();
    }
    storable(key)
}

/// PostgreSQL can't store NUL characters.
fn storable(text: &str) -> Box<str> {
    text.replace('\0', "\u{fffd}").into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn incoming<'a>(payload: &'a [u8], headers: Vec<(String, String)>) -> Incoming<'a> {
        Incoming {
            id: None,
            position: ["topic", "0", "7"],
            topic: "topic",
            key: None,
            payload,
            headers,
        }
    }

    #[test]
    fn headers_survive_the_round_trip() {
        let headers = r#"{"tenant":"a","retries":3,"odd name":"x","line":"a\nb","postrider-key":"mine","deep":{"a":[1]}}"#;
        let sent = Message::new(MessageId::new(Uuid::nil()), "t:1", "{}")
            .headers(headers)
            .trace("00-1");
        let received = incoming(b"{}", encode_headers(&sent)).into_message();
        assert_eq!(received.topic, sent.topic);
        assert_eq!(received.trace, sent.trace);
        let read =
            |m: &Message| -> Value { serde_json::from_str(m.headers.as_deref().unwrap()).unwrap() };
        assert_eq!(read(&received), read(&sent));
        assert_eq!(received.key, None);
    }

    #[test]
    fn any_payload_becomes_a_storable_message() {
        assert_eq!(&*incoming(b"", vec![]).into_message().payload, "null");
        assert_eq!(
            &*incoming(b"not json", vec![]).into_message().payload,
            "\"not json\""
        );
        let odd = incoming(b"\xff\0\x01", vec![("a\0".into(), "b\0".into())]).into_message();
        assert!(serde_json::from_str::<String>(&odd.payload).is_ok());
        assert!(!odd.headers.unwrap().contains("\\u0000"));
        let mut long = incoming(b"1", vec![]);
        long.key = Some("k".repeat(5_000));
        assert!(long.into_message().key.unwrap().len() <= MAX_KEY_LENGTH);
    }

    #[test]
    fn a_message_without_an_id_gets_one_that_is_stable_across_redeliveries() {
        let id = incoming(b"1", vec![]).into_message().id;
        assert_eq!(id, incoming(b"1", vec![]).into_message().id);
        let named = incoming(b"1", vec![(ID.into(), Uuid::nil().to_string())]).into_message();
        assert_eq!(named.id.uuid(), Uuid::nil());
    }
}
