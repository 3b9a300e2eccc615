//! What can be configured about payments: the section `[payments]`.

use std::{fmt, time::Duration};

use postrider::{
    retry::{Policy, PolicyError},
    settings::{BreakerOverride, Delay, Lease, address, not_http, unless_empty},
};
use serde::Deserialize;
use url::Url;

/// How hard it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Published a bounded number of times, handled once, told once.
    Chance,
    /// Until it is done, or a dead letter.
    Assured,
}

/// `[payments]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How hard it is tried.
    pub delivery: Mode,
    /// How long published rows of the outbox are kept.
    #[serde(with = "postrider::duration")]
    pub retention: Duration,
    /// Publication.
    pub publish: PublishSettings,
    /// Leases.
    pub lease: Lease,
    /// The other side.
    pub wallet: WalletSettings,
    /// The way back.
    pub callback: CallbackSettings,
    /// What is stuck.
    pub reconcile: ReconcileSettings,
    /// When the receiver of call backs is left alone, where that differs from the common settings.
    pub breaker: BreakerOverride,
}

/// `[payments.publish]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishSettings {
    /// So many tries, the first included.
    pub max_attempts: u32,
    /// The waits between tries; the last repeats.
    pub backoff: Vec<Delay>,
}

/// `[payments.wallet]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalletSettings {
    /// Absent: the orchestrator's database.
    #[serde(deserialize_with = "address")]
    pub database_url: Option<Url>,
    /// Most connections to it.
    pub pool_size: u32,
    /// Tries of the listener in the mode `assured`.
    pub max_attempts: u32,
    /// At most so many messages share a transaction.
    pub batch: usize,
}

/// `[payments.callback]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackSettings {
    /// Absent: the orchestrator of this very process.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Shown as a bearer token.
    #[serde(deserialize_with = "unless_empty")]
    pub token: Option<String>,
    /// The longest that one call may take.
    #[serde(with = "postrider::duration")]
    pub timeout: Duration,
    /// So many calls at once.
    pub concurrency: usize,
}

/// `[payments.reconcile]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReconcileSettings {
    /// Absent: only when asked.
    #[serde(deserialize_with = "unless_empty")]
    pub every: Option<Delay>,
    /// Younger requests are left alone.
    #[serde(with = "postrider::duration")]
    pub after: Duration,
}

impl Settings {
    /// How a failed publication is tried again.
    pub fn publish_policy(&self) -> Result<Policy, PolicyError> {
        let waits: Vec<Duration> = self.publish.backoff.iter().map(|delay| delay.0).collect();
        Policy::table(waits, self.publish.max_attempts)
    }

    /// How a message that the listener failed over comes again, in the mode `assured`.
    pub fn listener_policy(&self) -> Result<Policy, PolicyError> {
        let (first, longest) = (Duration::from_millis(500), Duration::from_secs(60));
        Policy::exponential(first, longest, self.wallet.max_attempts)
    }

    /// What only shows when values are used. (key, what is wrong)
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
        if let Err(error) = self.listener_policy() {
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
            let wrong = "must begin with postgres://".to_owned();
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
            let wrong = "must be longer than zero".to_owned();
            found.push(("payments.callback.timeout", wrong));
        }
        if !(1..=1000).contains(&self.callback.concurrency) {
            let wrong = "must be between 1 and 1000".to_owned();
            found.push(("payments.callback.concurrency", wrong));
        }
        if self.reconcile.every.is_some_and(|every| every.0.is_zero()) {
            let wrong = "must be longer than zero; leave it empty for none".to_owned();
            found.push(("payments.reconcile.every", wrong));
        }
        found
    }
}

impl fmt::Debug for WalletSettings {
    /// What an address may carry does not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.database_url.as_ref().and_then(Url::host_str);
        f.debug_struct("WalletSettings")
            .field("host", &host)
            .field("pool_size", &self.pool_size)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CallbackSettings {
    /// Neither the token nor what an address may carry belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackSettings")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
