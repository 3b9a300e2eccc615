//! Who is told of N1 and N2: a webhook, a mailbox, both, or nobody.

use std::{fmt, time::Duration};

use postrider::internal::settings::{address, not_http, unless_empty};
use serde::Deserialize;
use url::Url;

/// `[evidence.notify]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// Gets a POST; absent: no webhook.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Signs it; absent: unsigned.
    #[serde(deserialize_with = "unless_empty")]
    pub secret: Option<String>,
    /// May the receiver have a private address, when it was not named by this file?
    pub allow_private: bool,
    /// How long the receiver may take.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// A mail server: `smtp://user:password@host:port`, or `smtps://…`; absent: no mail.
    #[serde(deserialize_with = "address")]
    pub smtp_url: Option<Url>,
    /// The sender of the mail.
    #[serde(deserialize_with = "unless_empty")]
    pub smtp_from: Option<String>,
    /// Its receiver.
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
            let what = "must be longer than zero".to_owned();
            found.push(("evidence.notify.timeout", what));
        }
        if let Some(url) = &self.smtp_url {
            if !matches!(url.scheme(), "smtp" | "smtps") {
                let what = "must begin with smtp:// or smtps://".to_owned();
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
    /// Neither the secret nor what an address may carry belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |url: &Option<Url>| url.as_ref().and_then(Url::host_str).map(str::to_owned);
        f.debug_struct("Notify")
            .field("host", &host(&self.url))
            .field("smtp_host", &host(&self.smtp_url))
            .finish_non_exhaustive()
    }
}
