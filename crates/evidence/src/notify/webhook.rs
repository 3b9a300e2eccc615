//! A signed POST, as Standard Webhooks describes it.

use std::fmt::Display;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use postrider_engine::failure::{Category, Failure};
use postrider_web::outside::{self, Lost};
use reqwest::{Client, header};
use serde_json::Value;
use sha2::Sha256;
use time::OffsetDateTime;
use url::Url;
use uuid::Uuid;

use super::deliver::{Trouble, Unusable};
use crate::settings::Notify;

/// A secret with this in front is base64.
const PREFIX: &str = "whsec_";

/// One receiver.
pub(super) struct Webhook {
    client: Client,
    url: Url,
    key: Option<Vec<u8>>,
}

impl Webhook {
    /// None if no address is configured.
    pub(super) fn new(settings: &Notify) -> Result<Option<Self>, Unusable> {
        let Some(url) = settings.url.clone() else {
            return Ok(None);
        };
        let key = settings.secret.as_deref().map(signing_key).transpose()?;
        if key.is_none() {
            tracing::warn!("evidence.notify.secret is not set: notifications go out unsigned");
        }
        Ok(Some(Self {
            client: outside::client(settings.timeout)?,
            url,
            key,
        }))
    }

    pub(super) async fn post(&self, id: Uuid, body: &Value) -> Result<(), Trouble> {
        let text = body.to_string();
        let now = OffsetDateTime::now_utc().unix_timestamp();
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
            let failure = Failure::with_category(lost.code, Category::Network, message);
            Trouble::Receiver(failure, None)
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        // Whatever it says, the notification stays true: it is offered again until attempts run out.
        let message = format!("the receiver answered with status {status}");
        let failure = Failure::with_category(status.as_str(), Category::System, message);
        let wait = outside::retry_after(answer.headers());
        Err(Trouble::Receiver(failure, wait))
    }
}

/// The key that a configured secret stands for.
pub fn signing_key(secret: &str) -> Result<Vec<u8>, Unusable> {
    match secret.strip_prefix(PREFIX) {
        Some(encoded) => STANDARD
            .decode(encoded.trim())
            .map_err(|_| Unusable::Secret),
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
