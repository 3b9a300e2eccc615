//! A signed POST as the Standard Webhooks specification describes it.
//!
//! The promise: the receiver can verify the sender, the time, and that it's the same notification as before (`webhook-id` is the
//! same at every attempt). Neither the URL nor the secret appears in a message.

use std::fmt::Display;
use std::time::{Duration, SystemTime};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use http::header;
use postrider::failure::{Category, Failure};
use reqwest::Client;
use serde_json::Value;
use sha2::Sha256;
use url::Url;
use uuid::Uuid;

use super::{ClientError, NoResponse, client, retry_after};

/// Marks a base64 secret.
const PREFIX: &str = "whsec_";

/// One receiver.
#[derive(Clone)]
pub struct Webhook {
    client: Client,
    url: Url,
    key: Option<Vec<u8>>,
}

/// The receiver did not accept the notification. The same id may be posted again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{failure}")]
pub struct NotAccepted {
    /// Why.
    pub failure: Failure,
    /// The wait that the receiver asks for.
    pub after: Option<Duration>,
}

/// Why a webhook can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The HTTP client can't be built.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The secret is invalid.
    #[error(transparent)]
    Secret(#[from] InvalidSecret),
}

/// The secret is not valid base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret starts with whsec_ but the rest is not base64")]
pub struct InvalidSecret;

impl Webhook {
    /// A webhook that posts to this URL, signed if there is a secret.
    pub fn new(url: Url, secret: Option<&str>, timeout: Duration) -> Result<Self, WebhookError> {
        Ok(Self {
            client: client(timeout)?,
            url,
            key: secret.map(signing_key).transpose()?,
        })
    }

    /// Posts once. A notification stays true whatever the receiver answers, so every failure can be retried.
    pub async fn post(&self, id: Uuid, body: &Value) -> Result<(), NotAccepted> {
        let text = body.to_string();
        let now = unix_time();
        let mut request = self
            .client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", id.to_string())
            .header("webhook-timestamp", now);
        if let Some(key) = &self.key {
            request = request.header("webhook-signature", signature(key, id, now, &text));
        }
        let response = request.body(text).send().await.map_err(|error| {
            let error = NoResponse::from(error);
            let message = format!("the receiver did not respond: {error}");
            NotAccepted {
                failure: Failure::with_category(error.code, Category::Network, message),
                after: None,
            }
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let message = format!("the receiver answered with status {status}");
        Err(NotAccepted {
            failure: Failure::with_category(status.as_str(), Category::System, message),
            after: retry_after(response.headers()),
        })
    }
}

impl std::fmt::Debug for Webhook {
    /// Neither the key nor credentials in the URL belong in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("host", &self.url.host_str())
            .field("signed", &self.key.is_some())
            .finish_non_exhaustive()
    }
}

fn unix_time() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

/// The signing key of a configured secret.
pub fn signing_key(secret: &str) -> Result<Vec<u8>, InvalidSecret> {
    match secret.strip_prefix(PREFIX) {
        Some(encoded) => STANDARD.decode(encoded.trim()).map_err(|_| InvalidSecret),
        None => Ok(secret.as_bytes().to_vec()),
    }
}

/// The value of `webhook-signature`: version, and the HMAC-SHA256 of id, time and body.
#[must_use]
pub fn signature(key: &[u8], id: impl Display, timestamp: i64, body: &str) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        // Never happens: HMAC keys may have any length.
        return String::new();
    };
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body.as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
