//! Announcements: a signed POST, sent through the outbox, so that it survives crashes.
//!
//! The outbox's worker makes the call itself, without a broker: an alert about an unavailable broker must not wait for
//! that broker.

use std::{sync::Arc, time::Duration};

use postrider::{
    BoxError, Error, Handler, RetryPolicy, Verdict,
    outbox::{self, Message},
};
use postrider_web::http_client::webhook::Webhook;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Alert, AlertState, Settings};
use crate::exit::{Exit, Failure};

/// The topic in the outbox.
pub(crate) const TOPIC: &str = "postrider.alert";

#[derive(Debug, Serialize, Deserialize)]
struct Announcement {
    /// The same on every attempt.
    id: Uuid,
    body: Value,
}

/// Enqueues the announcement in the caller's transaction. Announcements of one alert are sent in order.
pub(super) async fn announce(tx: &mut PgConnection, alert: &Alert) -> Result<(), Error> {
    let kind = match alert.state {
        AlertState::Resolved => "alert.resolved",
        AlertState::Firing | AlertState::Pending => "alert.firing",
    };
    let announcement = Announcement {
        id: Uuid::now_v7(),
        body: json!({ "type": kind, "alert": alert }),
    };
    let message = Message::new(TOPIC, &announcement)?.ordering_key(alert.id.to_string())?;
    outbox::enqueue(tx, &message).await.map(drop)
}

/// Delivers announcements.
pub(crate) fn handler(settings: &Settings) -> Result<Handler, Failure> {
    let invalid =
        |e: &(dyn std::error::Error + 'static)| Failure::caused(Exit::Config, "alerts.url", e);
    let receiver = match settings.url.clone() {
        Some(url) => {
            if settings.secret.is_none() {
                tracing::warn!("alerts.secret is not set; alerts are sent unsigned");
            }
            let secret = settings.secret.as_deref();
            let webhook = Webhook::new(url, secret, settings.timeout);
            Some(Arc::new(webhook.map_err(|e| invalid(&e))?))
        }
        None => None,
    };
    let deliver = move |item: postrider::lease::Item| {
        let receiver = receiver.clone();
        async move {
            let announcement: Announcement = item.read()?;
            let Some(receiver) = receiver else {
                tracing::info!("alerts.url is not set; an announcement was dropped");
                return Ok::<Verdict, BoxError>(Verdict::Done);
            };
            let posted = receiver.post(announcement.id, &announcement.body).await;
            Ok(match posted {
                Ok(()) => Verdict::Done,
                Err(refusal) => Verdict::Retry {
                    failure: refusal.failure,
                    after: refusal.after,
                },
            })
        }
    };
    // From seconds to fifteen minutes, for about two hours: later, the alert is out of date.
    let policy = RetryPolicy::exponential(Duration::from_secs(2), Duration::from_secs(900), 16)
        .map_err(|e| invalid(&e))?;
    Ok(Handler::new(deliver).policy(policy).concurrency(4))
}
