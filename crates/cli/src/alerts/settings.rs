//! How often alerts are judged, and who is told.

use std::{fmt, time::Duration};

use postrider::settings::{address, not_http, unless_empty};
use postrider_web::http_client::webhook::signing_key;
use serde::Deserialize;
use url::Url;

/// `[alerts]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// From one look to the next.
    #[serde(with = "postrider::duration")]
    pub every: Duration,
    /// Is told when an alert fires and when it is over; absent: nobody.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Signs what is told; absent: unsigned.
    #[serde(deserialize_with = "unless_empty")]
    pub secret: Option<String>,
    /// How long the receiver may take.
    #[serde(with = "postrider::duration")]
    pub timeout: Duration,
}

impl Settings {
    /// What is wrong with them. (key, what is wrong and what to do)
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&self.every) {
            found.push(("alerts.every", "must be between 1s and 1h".to_owned()));
        }
        if let Some(wrong) = not_http(self.url.as_ref()) {
            found.push(("alerts.url", wrong));
        }
        if let Some(Err(wrong)) = self.secret.as_deref().map(signing_key) {
            found.push(("alerts.secret", wrong.to_string()));
        }
        if self.timeout.is_zero() {
            found.push(("alerts.timeout", "must be longer than zero".to_owned()));
        }
        found
    }
}

impl fmt::Debug for Settings {
    /// Neither the secret nor what an address may carry belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("every", &self.every)
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .finish_non_exhaustive()
    }
}
