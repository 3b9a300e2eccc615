//! Configuration: the section `[payments]`.

use std::{fmt, time::Duration};

use postrider::{
    RetryPolicy,
    internal::settings::{BreakerOverride, Delay, Lease, address, not_http, unless_empty},
    retry::PolicyError,
};
use postrider_web::http_client::Endpoint;
use serde::Deserialize;
use url::Url;

/// How persistently payments are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryMode {
    /// Publish a bounded number of times, handle a message once, call back once.
    Chance,
    /// Continue until the payment is done or a dead letter.
    Assured,
}

/// `[payments]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How persistently payments are delivered.
    pub delivery: DeliveryMode,
    /// How long published outbox rows are kept.
    #[serde(with = "postrider::internal::duration")]
    pub retention: Duration,
    /// Publication.
    pub publish: PublishSettings,
    /// Lease duration.
    pub lease: Lease,
    /// The wallet.
    pub wallet: WalletSettings,
    /// Callbacks.
    pub callback: CallbackSettings,
    /// Reconciliation.
    pub reconcile: ReconcileSettings,
    /// Circuit breaker settings of callbacks that differ from the common ones.
    pub breaker: BreakerOverride,
}

/// `[payments.publish]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishSettings {
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// Delays between attempts; the last one repeats.
    pub backoff: Vec<Delay>,
}

/// `[payments.wallet]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalletSettings {
    /// The wallet's own database; absent: the program's.
    #[serde(deserialize_with = "address")]
    pub database_url: Option<Url>,
    /// Maximum number of connections.
    pub pool_size: u32,
    /// Maximum number of attempts to handle a message in mode `assured`.
    pub max_attempts: u32,
    /// Maximum number of messages per transaction.
    pub batch: usize,
}

/// `[payments.callback]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackSettings {
    /// Base URL; absent: this process.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Bearer token.
    #[serde(deserialize_with = "unless_empty")]
    pub token: Option<String>,
    /// Timeout of one call.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// Maximum number of concurrent calls.
    pub concurrency: usize,
}

/// `[payments.reconcile]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconcileSettings {
    /// Interval; absent: only on request.
    #[serde(deserialize_with = "unless_empty")]
    pub every: Option<Delay>,
    /// Minimum age of the requests to reconcile.
    #[serde(with = "postrider::internal::duration")]
    pub after: Duration,
}

impl Settings {
    /// The retry policy of publishing.
    pub fn publish_policy(&self) -> Result<RetryPolicy, PolicyError> {
        let waits: Vec<Duration> = self.publish.backoff.iter().map(|delay| delay.0).collect();
        RetryPolicy::table(waits, self.publish.max_attempts)
    }

    /// The retry policy of the wallet's consumer in mode `assured`.
    pub fn consumer_policy(&self) -> Result<RetryPolicy, PolicyError> {
        let (first, max) = (Duration::from_millis(500), Duration::from_secs(60));
        RetryPolicy::exponential(first, max, self.wallet.max_attempts)
    }

    /// Invalid values as (key, problem).
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        match self.publish_policy() {
            Ok(_) => {}
            Err(error @ PolicyError::Attempts(_)) => {
                found.push(("payments.publish.max_attempts", error.to_string()));
            }
            Err(error) => found.push(("payments.publish.backoff", error.to_string())),
        }
        if let Err(error) = self.consumer_policy() {
            found.push(("payments.wallet.max_attempts", error.to_string()));
        }
        if let Some(wrong) = self.lease.contradiction() {
            found.push(("payments.lease.seconds", wrong));
        }
        let postgres = |url: &Url| matches!(url.scheme(), "postgres" | "postgresql");
        if self
            .wallet
            .database_url
            .as_ref()
            .is_some_and(|url| !postgres(url))
        {
            let wrong = "must start with postgres://".to_owned();
            found.push(("payments.wallet.database_url", wrong));
        }
        if !(2..=1000).contains(&self.wallet.pool_size) {
            let wrong = "must be between 2 and 1000".to_owned();
            found.push(("payments.wallet.pool_size", wrong));
        }
        if !(1..=5000).contains(&self.wallet.batch) {
            let wrong = "must be between 1 and 5000".to_owned();
            found.push(("payments.wallet.batch", wrong));
        }
        if let Some(wrong) = not_http(self.callback.url.as_ref()) {
            found.push(("payments.callback.url", wrong));
        }
        if self.callback.timeout.is_zero() {
            let wrong = "must be greater than zero".to_owned();
            found.push(("payments.callback.timeout", wrong));
        }
        if !(1..=1000).contains(&self.callback.concurrency) {
            let wrong = "must be between 1 and 1000".to_owned();
            found.push(("payments.callback.concurrency", wrong));
        }
        if self.reconcile.every.is_some_and(|every| every.0.is_zero()) {
            let wrong = "must be greater than zero; leave it empty to turn it off".to_owned();
            found.push(("payments.reconcile.every", wrong));
        }
        found
    }
}

impl fmt::Debug for WalletSettings {
    /// Credentials in the URL don't belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.database_url.as_ref().and_then(Url::host_str);
        f.debug_struct("WalletSettings")
            .field("host", &host)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

impl CallbackSettings {
    /// Where callbacks are sent; `None` for this process.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        Endpoint::from_settings(self.url.as_ref(), self.token.as_deref(), self.timeout)
    }
}

impl fmt::Debug for CallbackSettings {
    /// Neither the token nor credentials in the URL belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackSettings")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
