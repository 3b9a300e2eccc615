//! Receivers of N1 and N2: a webhook, a mailbox, both or none.

use std::{fmt, time::Duration};

use postrider::internal::settings::{address, not_http, unless_empty};
use serde::Deserialize;
use url::Url;

/// `[evidence.notify]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// Address of the webhook, if any.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Secret that signs webhook calls; if absent, they are unsigned.
    #[serde(deserialize_with = "unless_empty")]
    pub secret: Option<String>,
    /// Whether the receiver may have a private address when it isn't named by the configuration.
    pub allow_private: bool,
    /// Deadline of a call.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// Mail server, if any: `smtp://user:password@host:port` or `smtps://…`.
    #[serde(deserialize_with = "address")]
    pub smtp_url: Option<Url>,
    /// Sender of mails.
    #[serde(deserialize_with = "unless_empty")]
    pub smtp_from: Option<String>,
    /// Receiver of mails.
    #[serde(deserialize_with = "unless_empty")]
    pub smtp_to: Option<String>,
}

impl Notify {
    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if let Some(wrong) = not_http(self.url.as_ref()) {
            found.push(("evidence.notify.url", wrong));
        }
        if self.timeout.is_zero() {
            let what = "must be greater than zero".to_owned();
            found.push(("evidence.notify.timeout", what));
        }
        if let Some(url) = &self.smtp_url {
            if !matches!(url.scheme(), "smtp" | "smtps") {
                let what = "must start with smtp:// or smtps://".to_owned();
                found.push(("evidence.notify.smtp_url", what));
            }
            for (key, value) in [
                ("evidence.notify.smtp_from", &self.smtp_from),
                ("evidence.notify.smtp_to", &self.smtp_to),
            ] {
                let usable = value
                    .as_ref()
                    .is_some_and(|text| text.parse::<lettre::message::Mailbox>().is_ok());
                if !usable {
                    let what = "must be a mail address when evidence.notify.smtp_url is set";
                    found.push((key, what.to_owned()));
                }
            }
        }
        found
    }
}

impl fmt::Debug for Notify {
    /// Without the secret and the addresses, which may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |url: &Option<Url>| url.as_ref().and_then(Url::host_str).map(str::to_owned);
        f.debug_struct("Notify")
            .field("host", &host(&self.url))
            .field("smtp_host", &host(&self.smtp_url))
            .finish_non_exhaustive()
    }
}
