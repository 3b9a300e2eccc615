//! The payload of a claimed delivery: the message in one JSON object.

use postrider::failure::Failure;
use postrider::lease::Item;
use postrider::transport::{Message, MessageId};
use serde_json::value::RawValue;

#[derive(serde::Deserialize)]
struct Envelope<'a> {
    id: uuid::Uuid,
    topic: Box<str>,
    key: Option<Box<str>>,
    trace: Option<Box<str>>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

/// The message of a claimed delivery. A failure means that the log doesn't have it, which no retry can change.
pub(super) fn read_message(item: &Item) -> Result<Message, Failure> {
    let envelope: Envelope<'_> = serde_json::from_str(&item.payload)
        .map_err(|error| Failure::from_error("UNREADABLE_PAYLOAD", &error))?;
    Ok(Message {
        id: MessageId::new(envelope.id),
        topic: envelope.topic,
        key: envelope.key,
        payload: envelope.payload.get().into(),
        headers: envelope.headers.map(|headers| headers.get().into()),
        trace: envelope.trace,
    })
}
