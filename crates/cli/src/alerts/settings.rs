//! Settings of alerts.

use std::{fmt, time::Duration};

use postrider::internal::settings::{address, not_http, unless_empty};
use postrider_web::http_client::webhook::signing_key;
use serde::Deserialize;
use url::Url;

/// `[alerts]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Interval between evaluations.
    #[serde(with = "postrider::internal::duration")]
    pub every: Duration,
    /// Receives a POST when an alert fires and when it is resolved; absent: none.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Secret that signs announcements; absent: unsigned.
    #[serde(deserialize_with = "unless_empty")]
    pub secret: Option<String>,
    /// Timeout of the receiver.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
}

impl Settings {
    /// Invalid values: (key, what is wrong and what to do).
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
            found.push(("alerts.timeout", "must be greater than zero".to_owned()));
        }
        found
    }
}

impl fmt::Debug for Settings {
    /// Neither the secret nor the URL's credentials belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("every", &self.every)
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .finish_non_exhaustive()
    }
}
