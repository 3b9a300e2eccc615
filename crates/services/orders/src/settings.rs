//! Configuration: the section `[orders]`.

use std::{fmt, time::Duration};

use postrider::{
    RetryPolicy,
    internal::settings::{BreakerOverride, Delay, Lease, address, not_http, unless_empty},
    limits::{InvalidRate, Limit, Rate},
    retry::PolicyError,
};
use postrider_web::http_client::Endpoint;
use serde::Deserialize;
use url::Url;

use crate::model::Order;

/// `[orders]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The broker.
    pub broker: BrokerSettings,
    /// Maximum number of concurrent broker calls.
    pub concurrency: usize,
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// Delays between attempts; the last one repeats.
    pub backoff: Vec<Delay>,
    /// Lease duration.
    pub lease: Lease,
    /// Which orders are sent strictly one after another.
    pub ordering: Ordering,
    /// How long finished rows are kept.
    #[serde(with = "postrider::internal::duration")]
    pub retention: Duration,
    /// Circuit breaker settings that differ from the common ones.
    pub breaker: BreakerOverride,
}

/// Which orders are sent strictly one after another: each waits until the one before it is finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ordering {
    /// No ordering: orders are sent concurrently.
    #[default]
    None,
    /// The orders of one account.
    Account,
    /// The orders of one symbol.
    Symbol,
}

impl Ordering {
    /// The order's ordering key.
    #[must_use]
    pub fn key(self, order: &Order) -> Option<String> {
        match self {
            Self::None => None,
            Self::Account => Some(format!("account {}", order.account)),
            Self::Symbol => Some(format!("symbol {}", order.symbol)),
        }
    }
}

/// `[orders.broker]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerSettings {
    /// Base URL; absent: the built-in paper broker.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Bearer token.
    #[serde(deserialize_with = "unless_empty")]
    pub token: Option<String>,
    /// Timeout of one call.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// Maximum calls per second from each process; absent: unlimited.
    #[serde(deserialize_with = "unless_empty")]
    pub rate: Option<f64>,
    /// Maximum burst of calls, if there is a rate.
    pub burst: u32,
}

impl BrokerSettings {
    /// The broker's API; `None` for the built-in paper broker.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        Endpoint::from_settings(self.url.as_ref(), self.token.as_deref(), self.timeout)
    }

    /// The rate limit.
    pub fn limit(&self) -> Result<Limit, InvalidRate> {
        let rate = self
            .rate
            .map(|rate| Rate::new(rate, self.burst))
            .transpose()?;
        Ok(Limit {
            rate,
            concurrency: None,
        })
    }
}

impl Settings {
    /// The retry policy.
    pub fn policy(&self) -> Result<RetryPolicy, PolicyError> {
        let waits: Vec<Duration> = self.backoff.iter().map(|delay| delay.0).collect();
        RetryPolicy::table(waits, self.max_attempts)
    }

    /// Invalid values as (key, problem).
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        match self.policy() {
            Ok(_) => {}
            Err(error @ PolicyError::Attempts(_)) => {
                found.push(("orders.max_attempts", error.to_string()));
            }
            Err(error) => found.push(("orders.backoff", error.to_string())),
        }
        if !(1..=1000).contains(&self.concurrency) {
            found.push((
                "orders.concurrency",
                "must be between 1 and 1000".to_owned(),
            ));
        }
        if self.broker.timeout.is_zero() {
            found.push((
                "orders.broker.timeout",
                "must be greater than zero".to_owned(),
            ));
        }
        match self.broker.limit() {
            Ok(_) => {}
            Err(error @ InvalidRate::PerSecond(_)) => {
                found.push(("orders.broker.rate", error.to_string()));
            }
            Err(error @ InvalidRate::NoBurst) => {
                found.push(("orders.broker.burst", error.to_string()));
            }
        }
        if let Some(wrong) = self.lease.contradiction() {
            found.push(("orders.lease.seconds", wrong));
        }
        if let Some(wrong) = not_http(self.broker.url.as_ref()) {
            found.push(("orders.broker.url", wrong));
        }
        found
    }
}

impl fmt::Debug for BrokerSettings {
    /// Neither the token nor credentials in the URL belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerSettings")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
