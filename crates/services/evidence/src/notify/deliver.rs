//! Brings a notification to every receiver that is configured.
//!
//! At least once, with an id that never changes: a crash between the receiver's answer and our record of it sends the
//! same id again. With several receivers, one that has it is not spared while another has not.

use std::time::Duration;

use futures_util::future::join_all;
use postrider::{
    Error,
    failure::{Category, Failure},
    retry::Policy,
    runtime::Verdict,
    transport::Message,
};
use postrider_web::http_client::webhook::{self, NotTaken, Webhook};
use sqlx::PgPool;

use super::smtp::Mailer;
use crate::{events::NotificationEvent, settings::Notify, store::summary};

/// Notifications under way at once.
pub(super) const AT_ONCE: usize = 16;

/// What can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The webhook can't be prepared.
    #[error("evidence.notify.url and evidence.notify.secret can't be used")]
    Webhook(#[from] webhook::Unusable),
    /// The mail server's address can't be used.
    #[error("evidence.notify.smtp_url can't be used")]
    Smtp(#[from] lettre::transport::smtp::Error),
    /// A mail address can't be used.
    #[error("{0} is no mail address")]
    Mailbox(&'static str),
}

/// Delivers; none, one or several receivers.
pub struct Deliverer {
    pool: PgPool,
    webhook: Option<Webhook>,
    mailer: Option<Mailer>,
    timeout: Duration,
}

impl Deliverer {
    /// To the receivers of these settings.
    pub fn new(pool: PgPool, settings: &Notify) -> Result<Self, Unusable> {
        Ok(Self {
            pool,
            webhook: receiver(settings)?,
            mailer: Mailer::new(settings)?,
            timeout: settings.timeout,
        })
    }

    /// The longest that one delivery may take.
    pub(super) const fn longest(&self) -> Duration {
        self.timeout
    }

    pub(super) async fn deliver_all(&self, messages: &[Message]) -> Vec<Verdict> {
        join_all(messages.iter().map(|message| self.deliver(message))).await
    }

    async fn deliver(&self, message: &Message) -> Verdict {
        let event: NotificationEvent = match message.read() {
            Ok(event) => event,
            Err(failure) => return Verdict::Dead(failure),
        };
        match self.bring(&event).await {
            Ok(()) => Verdict::Done,
            Err(Trouble::Database(error)) => {
                tracing::warn!(%error, "a notification waits for the database");
                Verdict::Snooze(Duration::from_secs(1))
            }
            Err(Trouble::Receiver(failure, after)) => {
                tracing::warn!(%failure, id = %event.notification_id, "a notification was not taken");
                Verdict::Retry { failure, after }
            }
        }
    }

    async fn bring(&self, event: &NotificationEvent) -> Result<(), Trouble> {
        let id = event.notification_id;
        let Some(notification) = summary::notification(&self.pool, id).await? else {
            let failure =
                Failure::with_category("UNKNOWN_NOTIFICATION", Category::Data, "no such row");
            return Err(Trouble::Receiver(failure, None));
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
            Trouble::Receiver(Failure::from_error("SYSTEM_ERROR", &error), None)
        })?;
        if self.webhook.is_none() && self.mailer.is_none() {
            tracing::info!(job = %notification.file_job_id, kind = notification.kind, "nobody is to be notified");
            return Ok(());
        }
        Ok(summary::delivered(&self.pool, id).await?)
    }
}

/// None if no address is configured.
fn receiver(settings: &Notify) -> Result<Option<Webhook>, webhook::Unusable> {
    let Some(url) = settings.url.clone() else {
        return Ok(None);
    };
    if settings.secret.is_none() {
        tracing::warn!("evidence.notify.secret is not set: notifications go out unsigned");
    }
    Webhook::new(url, settings.secret.as_deref(), settings.timeout).map(Some)
}

/// Why a notification is not delivered yet.
pub(super) enum Trouble {
    Database(sqlx::Error),
    Receiver(Failure, Option<Duration>),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<NotTaken> for Trouble {
    fn from(refusal: NotTaken) -> Self {
        Self::Receiver(refusal.failure, refusal.after)
    }
}

/// From seconds to hours, for about a day; then it is a dead letter that can be redriven.
pub(super) fn policy() -> Result<Policy, Error> {
    Policy::exponential(Duration::from_secs(2), Duration::from_secs(7_200), 20)
        .map_err(|error| Error::invalid("evidence.notify", error.to_string()))
}
