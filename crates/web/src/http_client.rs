//! Calls to other people's servers: what every service needs when it is the client.
//!
//! The promises: a call ends in time and follows no redirect, an answer takes bounded memory, a call without an answer
//! says whether it may have arrived ([`Lost`]), and a wait that the other side asked for is understood in every form
//! that the standard allows ([`retry_after`]). Addresses are kept out of messages: they may carry secrets. What others are
//! told unasked goes out signed ([`webhook`]).

pub mod webhook;

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use reqwest::{Client, ClientBuilder, Response, redirect};
use url::Url;

/// However long another party asks us to wait, it is asked again after this.
pub const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// Nobody needs longer to accept a connection.
const LONGEST_CONNECT: Duration = Duration::from_secs(10);

/// No client can be made on this machine.
#[derive(Debug, thiserror::Error)]
#[error("no HTTP client can be prepared; check the machine's TLS setup and its proxy variables")]
pub struct Unprepared(#[from] reqwest::Error);

/// A client each of whose calls takes at most so long, the reading of the answer included.
pub fn client(timeout: Duration) -> Result<Client, Unprepared> {
    Ok(builder()
        .timeout(timeout)
        .connect_timeout(timeout.min(LONGEST_CONNECT))
        .build()?)
}

/// The same without time limits, for those who set their own.
pub fn builder() -> ClientBuilder {
    Client::builder()
        // A redirected POST may be made twice or become a GET: the address must be the right one.
        .redirect(redirect::Policy::none())
        .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
}

/// The address below `base` with these segments, each escaped: a name from outside can't leave its place. None for a
/// name that no address can hold: an empty one, `.` and `..`, which mean another place even when they are escaped.
#[must_use]
pub fn below(base: &Url, segments: &[&str]) -> Option<Url> {
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

/// May the same request succeed later without anybody changing it? 408, 425, 429 and every 5xx.
#[must_use]
pub fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429) || status.is_server_error()
}

/// How long the other side asks us to wait, as seconds or as a date; none if it does not say, or says "now".
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds are more than the longest wait, too.
        text.parse().map_or(LONGEST_WAIT, Duration::from_secs)
    } else {
        let at = httpdate::parse_http_date(text).ok()?;
        at.duration_since(SystemTime::now()).ok()?
    };
    Some(wait.min(LONGEST_WAIT)).filter(|wait| !wait.is_zero())
}

/// A call that got no answer, or lost it on the way.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Lost {
    /// `NETWORK_TIMEOUT` or `NETWORK_ERROR`.
    pub code: &'static str,
    /// False only if not even a connection was made.
    pub may_have_arrived: bool,
    /// What happened, without the address.
    pub message: String,
    #[source]
    source: reqwest::Error,
}

impl From<reqwest::Error> for Lost {
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

/// Why an answer could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// It broke off.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// It is longer than anybody needs.
    #[error("the answer is longer than {most} bytes")]
    TooLong {
        /// The limit.
        most: usize,
    },
}

/// The whole body of an answer, if it has at most `most` bytes.
pub async fn body(mut response: Response, most: usize) -> Result<Bytes, Unread> {
    let announced = response
        .content_length()
        .and_then(|length| usize::try_from(length).ok());
    if announced.is_some_and(|length| length > most) {
        return Err(Unread::TooLong { most });
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(Lost::from)? {
        if bytes.len() + chunk.len() > most {
            return Err(Unread::TooLong { most });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}
