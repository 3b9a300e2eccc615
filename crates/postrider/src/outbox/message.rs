//! A message, validated before it reaches the database.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::{Error, Result};

/// Maximum length of a topic, in characters.
pub const MAX_TOPIC: usize = 200;
/// Maximum length of an ordering or dedupe key, in characters.
pub const MAX_KEY: usize = 200;
/// Maximum size of a payload, in bytes of JSON text.
pub const MAX_PAYLOAD: usize = 1_048_576;
/// Maximum size of the headers, in bytes of JSON text.
pub const MAX_HEADERS: usize = 16_384;
/// Maximum delay.
pub const MAX_DELAY: Duration = crate::retry::MAX_DELAY;

/// A validated message.
#[derive(Debug, Clone)]
pub struct Message {
    pub(super) topic: String,
    pub(super) payload: Box<RawValue>,
    pub(super) headers: Option<serde_json::Value>,
    pub(super) ordering_key: Option<String>,
    pub(super) dedupe_key: Option<String>,
    pub(super) trace: Option<String>,
    pub(super) delay: Duration,
}

impl Message {
    /// Creates a message with this payload. The topic also selects the handler.
    pub fn new(topic: impl Into<String>, payload: &impl Serialize) -> Result<Self> {
        let payload = serde_json::value::to_raw_value(payload).map_err(|error| {
            Error::invalid("payload", format!("can't be serialized as JSON: {error}"))
        })?;
        Self::raw(topic, payload)
    }

    /// Creates a message from a payload that is JSON text already.
    pub fn raw(topic: impl Into<String>, payload: Box<RawValue>) -> Result<Self> {
        let topic = topic.into();
        check_topic(&topic)?;
        if payload.get().len() > MAX_PAYLOAD {
            return Err(Error::invalid(
                "payload",
                format!(
                    "{} bytes, the limit is {MAX_PAYLOAD}; store the body elsewhere and send a reference to it",
                    payload.get().len()
                ),
            ));
        }
        check_escapes("payload", payload.get())?;
        Ok(Self {
            topic,
            payload,
            headers: None,
            ordering_key: None,
            dedupe_key: None,
            trace: None,
            delay: Duration::ZERO,
        })
    }

    /// Adds headers, a JSON object.
    pub fn headers(mut self, headers: &impl Serialize) -> Result<Self> {
        let headers = serde_json::to_value(headers).map_err(|error| {
            Error::invalid("headers", format!("can't be serialized as JSON: {error}"))
        })?;
        let text = headers.to_string();
        if !headers.is_object() || text.len() > MAX_HEADERS {
            return Err(Error::invalid(
                "headers",
                format!("must be a JSON object of at most {MAX_HEADERS} bytes"),
            ));
        }
        check_escapes("headers", &text)?;
        self.headers = Some(headers);
        Ok(self)
    }

    /// Sets the ordering key: messages of one key are published in the order of their commits.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Result<Self> {
        self.ordering_key = Some(check_key("ordering_key", key.into())?);
        self.check_order()
    }

    /// Sets the dedupe key: a second message with this key on the same topic isn't enqueued while the first is
    /// unfinished.
    pub fn dedupe_key(mut self, key: impl Into<String>) -> Result<Self> {
        self.dedupe_key = Some(check_key("dedupe_key", key.into())?);
        Ok(self)
    }

    /// Sets the W3C traceparent of the request that caused this message.
    pub fn trace(mut self, traceparent: impl Into<String>) -> Result<Self> {
        let traceparent = traceparent.into();
        let lengths: Vec<usize> = traceparent.split('-').map(str::len).collect();
        let hex = |c: char| c == '-' || c.is_ascii_digit() || ('a'..='f').contains(&c);
        if lengths != [2, 32, 16, 2] || !traceparent.chars().all(hex) {
            return Err(Error::invalid("trace", "a W3C traceparent"));
        }
        self.trace = Some(traceparent);
        Ok(self)
    }

    /// Delays the message by this long, by the database's clock.
    pub fn delay(mut self, delay: Duration) -> Result<Self> {
        if delay > MAX_DELAY {
            return Err(Error::invalid("delay", "from 0 to 3650 days"));
        }
        self.delay = delay;
        self.check_order()
    }

    /// The topic.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The headers, as sent in an array.
    pub(super) fn header_text(&self) -> Option<String> {
        self.headers.as_ref().map(ToString::to_string)
    }

    pub(super) const fn is_keyed(&self) -> bool {
        self.ordering_key.is_some() || self.dedupe_key.is_some()
    }

    /// The message has nothing but a topic and a payload.
    pub(super) const fn is_bare(&self) -> bool {
        !self.is_keyed() && self.headers.is_none() && self.trace.is_none() && self.delay.is_zero()
    }

    fn check_order(self) -> Result<Self> {
        if self.ordering_key.is_some() && !self.delay.is_zero() {
            return Err(Error::invalid(
                "delay",
                "can't be combined with ordering_key: the whole key would wait behind it",
            ));
        }
        Ok(self)
    }
}

fn check_topic(topic: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._:/-".contains(c);
    let begins_well = topic.starts_with(|c: char| c.is_ascii_alphanumeric());
    if topic.len() > MAX_TOPIC || !begins_well || !topic.chars().all(fits) {
        return Err(Error::invalid(
            "topic",
            "must have 1 to 200 letters, digits and . _ : / -, starting with a letter or digit",
        ));
    }
    Ok(())
}

fn check_key(field: &'static str, key: String) -> Result<String> {
    let length = key.chars().count();
    if length == 0 || length > MAX_KEY || key.contains('\0') {
        return Err(Error::invalid(
            field,
            "must have 1 to 200 characters, none of them NUL",
        ));
    }
    Ok(key)
}

/// JSON can escape what PostgreSQL's `jsonb` can't store: NUL and unpaired surrogates.
fn check_escapes(field: &'static str, json: &str) -> Result<()> {
    if !json.contains("\\u") {
        return Ok(());
    }
    let refuse = |what: &str| {
        Err(Error::invalid(
            field,
            format!("contains {what}, which can't be stored"),
        ))
    };
    let bytes = json.as_bytes();
    let mut at = 0;
    let mut high = false;
    while at < bytes.len() {
        let unit = match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'u')) => json
                .get(at + 2..at + 6)
                .and_then(|hex| u16::from_str_radix(hex, 16).ok()),
            _ => None,
        };
        match unit {
            Some(0) => return refuse("\\u0000"),
            Some(0xD800..=0xDBFF) if !high => high = true,
            Some(0xDC00..=0xDFFF) if high => high = false,
            Some(0xD800..=0xDFFF) => return refuse("an unpaired surrogate"),
            _ if high => return refuse("an unpaired surrogate"),
            _ => {}
        }
        at += match (unit, bytes[at]) {
            (Some(_), _) => 6,
            // An escaped backslash doesn't start another escape.
            (None, b'\\') => 2,
            (None, _) => 1,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn raw(text: &str) -> Result<Message> {
        Message::raw("t", RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn what_jsonb_cannot_hold_is_refused() {
        assert!(raw(r#""\u0000""#).is_err());
        assert!(raw(r#"{"a":["x\u0000y"]}"#).is_err());
        assert!(raw(r#""\ud800""#).is_err());
        assert!(raw(r#""\ud800x""#).is_err());
        assert!(raw(r#""\udc00""#).is_err());
        assert!(raw(r#""\ud83d\ude00""#).is_ok());
        assert!(raw(r#""\\u0000""#).is_ok());
        assert!(raw(r#""\\\u0000""#).is_err());
        assert!(raw(r#""é\u00e9""#).is_ok());
    }

    #[test]
    fn topics_and_keys_have_limits() {
        assert!(Message::new("", &1).is_err());
        assert!(Message::new("no spaces", &1).is_err());
        assert!(Message::new("x".repeat(201), &1).is_err());
        let message = Message::new("invoice.sent", &1).unwrap();
        assert!(message.clone().dedupe_key("").is_err());
        assert!(message.clone().ordering_key("k".repeat(201)).is_err());
        assert!(message.clone().trace("00-x").is_err());
        assert!(message.clone().headers(&[1]).is_err());
        let keyed = message.ordering_key("k").unwrap();
        assert!(keyed.delay(Duration::from_secs(1)).is_err());
    }
}
