//! The id that connects a response, its log lines and a support request.

use std::convert::Infallible;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Builder;

/// The header with the id, in requests and responses.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

const MAX_LENGTH: usize = 128;

/// A request's id: the caller's own if it's valid, otherwise a new UUIDv7.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// A new id; later ids sort after earlier ones.
    #[must_use]
    pub fn generate() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = now.map_or(0, |since| since.as_millis() as u64);
        // The thread's generator: `now_v7` would call the kernel each time.
        let id = Builder::from_unix_timestamp_millis(millis, &rand::random()).into_uuid();
        let text = id.hyphenated().to_string();
        Self(HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("none")))
    }

    /// The id that the caller sent, if there is exactly one and it's short, visible ASCII: it's logged, so it must not be able to
    /// forge a log line or fill the disk.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(HEADER).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        let bytes = value.as_bytes();
        let usable =
            (1..=MAX_LENGTH).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
        usable.then(|| Self(value.clone()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// The id as the header's value.
    #[must_use]
    pub fn as_header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RequestId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<RequestId>().cloned();
        Ok(known.unwrap_or_else(RequestId::generate))
    }
}
