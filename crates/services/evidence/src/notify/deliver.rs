//! Delivers a notification to every configured receiver.
//!
//! At least once, with an id that never changes: a crash between the receiver's response and our record of it sends the
//! same id again. While one of several receivers fails, the others get the notification again, too.

use std::time::Duration;

use futures_util::future::join_all;
use postrider::{
    Error, RetryPolicy, Verdict,
    failure::{Category, Failure},
    transport::{Delivery, Message},
};
use postrider_web::http_client::webhook::{self, NotAccepted, Webhook};
use sqlx::PgPool;

use super::smtp::Mailer;
use crate::{events::NotificationEvent, settings::Notify, store::summary};

/// Maximum concurrent deliveries.
pub(super) const MAX_CONCURRENT: usize = 16;

/// Settings that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidReceiver {
    /// The webhook can't be prepared.
    #[error("evidence.notify.url and evidence.notify.secret can't be used")]
    Webhook(#[from] webhook::WebhookError),
    /// The mail server's address can't be used.
    #[error("evidence.notify.smtp_url can't be used")]
    Smtp(#[from] lettre::transport::smtp::Error),
    /// A mail address can't be used.
    #[error("{0} isn't a mail address")]
    Mailbox(&'static str),
}

/// Delivers notifications to a webhook, by mail, to both or to nobody.
pub struct Deliverer {
    pool: PgPool,
    webhook: Option<Webhook>,
    mailer: Option<Mailer>,
    timeout: Duration,
}

impl Deliverer {
    /// A deliverer to the receivers of these settings.
    pub fn new(pool: PgPool, settings: &Notify) -> Result<Self, InvalidReceiver> {
        Ok(Self {
            pool,
            webhook: receiver(settings)?,
            mailer: Mailer::new(settings)?,
            timeout: settings.timeout,
        })
    }

    pub(super) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The deadline of one call to a receiver.
    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) async fn deliver_all(&self, batch: &[Delivery]) -> Vec<Verdict> {
        join_all(batch.iter().map(|delivery| self.deliver(&delivery.message))).await
    }

    async fn deliver(&self, message: &Message) -> Verdict {
        let event: NotificationEvent = match message.read() {
            Ok(event) => event,
            Err(failure) => return Verdict::Dead(failure),
        };
        match self.send(&event).await {
            Ok(()) => Verdict::Done,
            Err(DeliveryError::Database(error)) => {
                tracing::warn!(%error, "a notification could not be read or recorded; retrying");
                Verdict::Snooze(Duration::from_secs(1))
            }
            Err(DeliveryError::Receiver(failure, after)) => {
                tracing::warn!(%failure, id = %event.notification_id, "a notification was not accepted by its receiver; retrying");
                Verdict::Retry { failure, after }
            }
        }
    }

    async fn send(&self, event: &NotificationEvent) -> Result<(), DeliveryError> {
        let id = event.notification_id;
        let Some(notification) = summary::notification(&self.pool, id).await? else {
            let failure = Failure::with_category(
                "UNKNOWN_NOTIFICATION",
                Category::Data,
                "there is no notification with this id",
            );
            return Err(DeliveryError::Receiver(failure, None));
        };
        if notification.delivered {
            return Ok(());
        }
        if let Some(webhook) = &self.webhook {
            webhook.post(id, &notification.body).await?;
        }
        if let Some(mailer) = &self.mailer {
            mailer.send(id, &notification).await?;
        }
        postrider_crashpoint::point!("evidence.delivered").map_err(|error| {
            DeliveryError::Receiver(Failure::from_error("SYSTEM_ERROR", &error), None)
        })?;
        if self.webhook.is_none() && self.mailer.is_none() {
            tracing::info!(job = %notification.file_job_id, kind = notification.kind, "no receiver is configured; the notification is only recorded");
            return Ok(());
        }
        Ok(summary::mark_delivered(&self.pool, id).await?)
    }
}

/// `None` if no address is configured.
fn receiver(settings: &Notify) -> Result<Option<Webhook>, webhook::WebhookError> {
    let Some(url) = settings.url.clone() else {
        return Ok(None);
    };
    if settings.secret.is_none() {
        tracing::warn!("evidence.notify.secret is not set: notifications are sent unsigned");
    }
    Webhook::new(url, settings.secret.as_deref(), settings.timeout).map(Some)
}

/// Why a notification could not be delivered.
pub(super) enum DeliveryError {
    Database(sqlx::Error),
    Receiver(Failure, Option<Duration>),
}

impl From<sqlx::Error> for DeliveryError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<NotAccepted> for DeliveryError {
    fn from(refusal: NotAccepted) -> Self {
        Self::Receiver(refusal.failure, refusal.after)
    }
}

/// Retries for about a day, then the notification is a dead letter that can be redriven.
pub(super) fn policy() -> Result<RetryPolicy, Error> {
    RetryPolicy::exponential(Duration::from_secs(2), Duration::from_secs(7_200), 20)
        .map_err(|error| Error::invalid("evidence.notify", error.to_string()))
}
