//! What can be configured about orders: the section `[orders]`.

use std::{fmt, time::Duration};

use postrider::{
    limits::{InvalidRate, Limit, Rate},
    retry::{Policy, PolicyError},
    settings::{BreakerOverride, Delay, Lease, address, not_http, unless_empty},
};
use serde::Deserialize;
use url::Url;

use crate::model::Order;

/// `[orders]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where orders go.
    pub broker: BrokerSettings,
    /// So many orders are sent at once.
    pub concurrency: usize,
    /// So many attempts, the first included.
    pub max_attempts: u32,
    /// The waits between attempts; the last repeats.
    pub backoff: Vec<Delay>,
    /// Leases.
    pub lease: Lease,
    /// Which orders are sent one after the other.
    pub ordering: Ordering,
    /// How long finished rows are kept.
    #[serde(with = "postrider::duration")]
    pub retention: Duration,
    /// When the broker is left alone, where that differs from the common settings.
    pub breaker: BreakerOverride,
}

/// Which orders are sent one after the other, each only when the one before it is finished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ordering {
    /// None: as they come, several at once.
    #[default]
    None,
    /// Those of one account.
    Account,
    /// Those of one symbol.
    Symbol,
}

impl Ordering {
    /// The key that an order waits in line under.
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
    /// Absent: the paper broker.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Shown to the broker as a bearer token.
    #[serde(deserialize_with = "unless_empty")]
    pub token: Option<String>,
    /// The longest that one call may take.
    #[serde(with = "postrider::duration")]
    pub timeout: Duration,
    /// At most so many calls a second from each process; absent: as fast as they come.
    #[serde(deserialize_with = "unless_empty")]
    pub rate: Option<f64>,
    /// So many calls at once after a rest, if there is a rate.
    pub burst: u32,
}

impl BrokerSettings {
    /// What the broker bears.
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
    /// The retry policy that attempts and waits make.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        let waits: Vec<Duration> = self.backoff.iter().map(|delay| delay.0).collect();
        Policy::table(waits, self.max_attempts)
    }

    /// What only shows when values are used. (key, what is wrong)
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
                "must be longer than zero".to_owned(),
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
    /// Neither the token nor what an address may carry belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerSettings")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
