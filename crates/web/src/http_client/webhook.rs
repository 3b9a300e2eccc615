//! A signed POST, as Standard Webhooks describes it.
//!
//! The promise: the receiver can tell who sent it, when, and that it is the same notification as before (`webhook-id`
//! never changes between attempts). The address and the secret appear in no message.

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

use super::{Lost, Unprepared, client, retry_after};

/// A secret with this in front is base64.
const PREFIX: &str = "whsec_";

/// One receiver.
#[derive(Clone)]
pub struct Webhook {
    client: Client,
    url: Url,
    key: Option<Vec<u8>>,
}

/// The receiver did not take it; the same id may be offered again.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{failure}")]
pub struct NotTaken {
    /// Why.
    pub failure: Failure,
    /// How long the receiver asks us to wait.
    pub after: Option<Duration>,
}

/// What can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// No HTTP client.
    #[error(transparent)]
    Client(#[from] Unprepared),
    /// The secret can't be read.
    #[error(transparent)]
    Secret(#[from] BadSecret),
}

/// The secret can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret begins with whsec_ but what follows is not base64")]
pub struct BadSecret;

impl Webhook {
    /// Posts there, signed if there is a secret; a call takes at most so long.
    pub fn new(url: Url, secret: Option<&str>, timeout: Duration) -> Result<Self, Unusable> {
        Ok(Self {
            client: client(timeout)?,
            url,
            key: secret.map(signing_key).transpose()?,
        })
    }

    /// Offers it once. Whatever the receiver says, a notification stays true: every refusal may be tried again.
    pub async fn post(&self, id: Uuid, body: &Value) -> Result<(), NotTaken> {
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
        let answer = request.body(text).send().await.map_err(|error| {
            let lost = Lost::from(error);
            let message = format!("the receiver gave no answer: {lost}");
            NotTaken {
                failure: Failure::with_category(lost.code, Category::Network, message),
                after: None,
            }
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let message = format!("the receiver answered with status {status}");
        Err(NotTaken {
            failure: Failure::with_category(status.as_str(), Category::System, message),
            after: retry_after(answer.headers()),
        })
    }
}

impl std::fmt::Debug for Webhook {
    /// Neither the key nor what an address may carry belongs in a log.
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

/// The key that a configured secret stands for.
pub fn signing_key(secret: &str) -> Result<Vec<u8>, BadSecret> {
    match secret.strip_prefix(PREFIX) {
        Some(encoded) => STANDARD.decode(encoded.trim()).map_err(|_| BadSecret),
        None => Ok(secret.as_bytes().to_vec()),
    }
}

/// The value of `webhook-signature`: version, and the HMAC-SHA256 of id, time and body.
#[must_use]
pub fn signature(key: &[u8], id: impl Display, timestamp: i64, body: &str) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        // Keys of any length are taken.
        return String::new();
    };
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body.as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
