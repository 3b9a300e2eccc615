//! Notifications by mail.

use lettre::{
    AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    message::{Mailbox, header::ContentType},
};
use postrider::failure::{Category, Failure};
use serde_json::Value;
use uuid::Uuid;

use super::deliver::{DeliveryError, InvalidReceiver};
use crate::{settings::Notify, store::summary::Notification};

/// Sends mails to one mailbox.
pub(super) struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    to: Mailbox,
}

impl Mailer {
    /// `None` if no mail server is configured.
    pub(super) fn new(settings: &Notify) -> Result<Option<Self>, InvalidReceiver> {
        let Some(url) = &settings.smtp_url else {
            return Ok(None);
        };
        let mailbox = |key, text: &Option<String>| {
            let parsed = text.as_deref().and_then(|text| text.parse().ok());
            parsed.ok_or(InvalidReceiver::Mailbox(key))
        };
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.as_str())?
            .timeout(Some(settings.timeout))
            .build();
        Ok(Some(Self {
            transport,
            from: mailbox("evidence.notify.smtp_from", &settings.smtp_from)?,
            to: mailbox("evidence.notify.smtp_to", &settings.smtp_to)?,
        }))
    }

    pub(super) async fn send(
        &self,
        id: Uuid,
        notification: &Notification,
    ) -> Result<(), DeliveryError> {
        let mail = Message::builder()
            .from(self.from.clone())
            .to(self.to.clone())
            // The same at every attempt, so that a mailbox can recognise a duplicate.
            .message_id(Some(format!("<{id}@postrider>")))
            .subject(subject(notification))
            .header(ContentType::TEXT_PLAIN)
            .body(text(notification))
            .map_err(|error| smtp_error(&error, Category::System))?;
        self.transport
            .send(mail)
            .await
            .map(drop)
            .map_err(|error| smtp_error(&error, Category::Network))
    }
}

fn smtp_error(error: &(dyn std::error::Error + 'static), category: Category) -> DeliveryError {
    let failure = Failure::from_error("SMTP", error);
    let failure = Failure::with_category("SMTP", category, failure.message());
    DeliveryError::Receiver(failure, None)
}

fn subject(notification: &Notification) -> String {
    let job = notification.file_job_id;
    match notification.kind.as_str() {
        "evidence.n1" => format!("Evidence of job {job}: first attempts are done"),
        _ => format!("Evidence of job {job}: final result"),
    }
}

fn text(notification: &Notification) -> String {
    let body = &notification.body;
    let line = |name: &str, words: &str| match body.get(name) {
        Some(Value::Null) | None => String::new(),
        Some(value) => format!("{words}: {value}\n"),
    };
    let mut text: String = [
        ("total", "Files"),
        ("attached", "Attached"),
        ("failed", "Failed so far"),
        ("will_retry", "Will be retried"),
        ("recovered_by_retry", "Attached by a retry"),
        ("permanent_failed", "Cannot be attached"),
        ("unsettled", "Unsettled at the deadline"),
        ("errors", "Errors by code"),
    ]
    .into_iter()
    .map(|(name, words)| line(name, words))
    .collect();
    let named = body.get("cannot_retry").and_then(Value::as_array);
    for file in named.into_iter().flatten() {
        let word = |name: &str| file.get(name).and_then(Value::as_str).unwrap_or("-");
        text.push_str(&format!(
            "Cannot retry: {} of case {} ({})\n",
            word("file_name"),
            word("case_id"),
            word("error_code")
        ));
    }
    text
}
