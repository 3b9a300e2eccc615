//! Calls to external HTTP APIs.
//!
//! The promises: a call ends in time and follows no redirect, a response takes bounded memory, a call without a response says
//! whether it may have arrived ([`NoResponse`]), and `Retry-After` is understood in every form that the standard allows
//! ([`retry_after`]). URLs are kept out of messages because they may contain secrets. Notifications to others are signed
//! ([`webhook`]).

mod endpoint;
pub mod webhook;

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use reqwest::{Client, ClientBuilder, Response, redirect};
use url::Url;

pub use endpoint::{Endpoint, EndpointClient};

/// Maximum wait that [`retry_after`] returns.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

const MAX_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The HTTP client can't be built on this machine.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client can't be built; check the machine's TLS setup and its proxy variables")]
pub struct ClientError(#[from] reqwest::Error);

/// A client with this timeout per call, including reading the response.
pub fn client(timeout: Duration) -> Result<Client, ClientError> {
    Ok(builder()
        .timeout(timeout)
        .connect_timeout(timeout.min(MAX_CONNECT_TIMEOUT))
        .build()?)
}

/// The same without timeouts, for callers that set their own.
pub fn builder() -> ClientBuilder {
    Client::builder()
        // A redirected POST may be repeated or become a GET: the configured URL must be the final one.
        .redirect(redirect::Policy::none())
        .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
}

/// `base` extended by these path segments, each escaped, so that an external name can't leave its path. None if a segment is
/// empty, `.` or `..`: those have another meaning even when they are escaped.
#[must_use]
pub fn join(base: &Url, segments: &[&str]) -> Option<Url> {
    if segments
        .iter()
        .any(|segment| matches!(*segment, "" | "." | ".."))
    {
        return None;
    }
    let mut url = base.clone();
    url.path_segments_mut()
        .ok()?
        .pop_if_empty()
        .extend(segments);
    Some(url)
}

/// May the same request succeed later? True for 408, 425, 429 and every 5xx.
#[must_use]
pub fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error()
}

/// The wait that `Retry-After` asks for, as seconds or as a date, up to [`MAX_RETRY_AFTER`]; none if it's absent or zero.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that overflows is above the maximum, too.
        text.parse().map_or(MAX_RETRY_AFTER, Duration::from_secs)
    } else {
        let at = httpdate::parse_http_date(text).ok()?;
        at.duration_since(SystemTime::now()).ok()?
    };
    Some(wait.min(MAX_RETRY_AFTER)).filter(|wait| !wait.is_zero())
}

/// A call that got no response, or lost it halfway.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NoResponse {
    /// `NETWORK_TIMEOUT` or `NETWORK_ERROR`.
    pub code: &'static str,
    /// False only if no connection was made.
    pub may_have_arrived: bool,
    /// What happened, without the URL.
    pub message: String,
    #[source]
    source: reqwest::Error,
}

impl From<reqwest::Error> for NoResponse {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self {
            code: if error.is_timeout() {
                "NETWORK_TIMEOUT"
            } else {
                "NETWORK_ERROR"
            },
            may_have_arrived: !error.is_connect() && !error.is_builder(),
            message,
            source: error,
        }
    }
}

/// Why a response body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection broke.
    #[error(transparent)]
    NoResponse(#[from] NoResponse),
    /// The body is too large.
    #[error("the response is larger than {max} bytes")]
    TooLarge {
        /// The limit.
        max: usize,
    },
}

/// The whole body of a response, if it has at most `max` bytes.
pub async fn body(mut response: Response, max: usize) -> Result<Bytes, BodyError> {
    let announced = response
        .content_length()
        .and_then(|length| usize::try_from(length).ok());
    if announced.is_some_and(|length| length > max) {
        return Err(BodyError::TooLarge { max });
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(NoResponse::from)? {
        if bytes.len() + chunk.len() > max {
            return Err(BodyError::TooLarge { max });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
