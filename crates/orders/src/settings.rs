//! What can be configured about orders: the section `[orders]`.

use std::{fmt, num::NonZeroU32, time::Duration};

use postrider_engine::{
    breaker,
    retry::{Policy, PolicyError},
};
use serde::{Deserialize, Deserializer, de::Error as _};
use url::Url;

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
    /// How long finished rows are kept.
    #[serde(with = "postrider_engine::duration")]
    pub retention: Duration,
    /// When the broker is left alone, where that differs from the common settings.
    pub breaker: BreakerSettings,
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
    #[serde(with = "postrider_engine::duration")]
    pub timeout: Duration,
}

/// `[orders.lease]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// How long a lost worker keeps its orders.
    #[serde(with = "postrider_engine::duration")]
    pub seconds: Duration,
}

/// `[orders.breaker]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakerSettings {
    /// Absent: `breaker.threshold`.
    #[serde(deserialize_with = "unless_empty")]
    pub threshold: Option<Threshold>,
    /// Absent: `breaker.open_for`.
    #[serde(deserialize_with = "unless_empty")]
    pub open_for: Option<Delay>,
}

/// One wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Delay(#[serde(with = "postrider_engine::duration")] pub Duration);

/// So many signs in a row; as a number or its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold(NonZeroU32);

impl Settings {
    /// The retry policy that attempts and waits make.
    pub fn policy(&self) -> Result<Policy, PolicyError> {
        let waits: Vec<Duration> = self.backoff.iter().map(|delay| delay.0).collect();
        Policy::table(waits, self.max_attempts)
    }

    /// The breaker's settings on top of the common ones.
    #[must_use]
    pub fn breaker(&self, common: breaker::Settings) -> breaker::Settings {
        breaker::Settings {
            threshold: self.breaker.threshold.map_or(common.threshold, |t| t.0),
            open_for: self
                .breaker
                .open_for
                .map_or(common.open_for, |delay| delay.0),
        }
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
        let lease = self.lease.seconds;
        if lease < Duration::from_millis(100) || lease > Duration::from_secs(86_400) {
            found.push((
                "orders.lease.seconds",
                "must be between 0.1 s and a day".to_owned(),
            ));
        }
        if let Some(url) = &self.broker.url
            && !matches!(url.scheme(), "http" | "https")
        {
            found.push((
                "orders.broker.url",
                "must begin with http:// or https://".to_owned(),
            ));
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

/// An empty text means "not set".
fn unless_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value = Given::deserialize(deserializer)?;
    match value {
        Given::Text(text) if text.is_empty() => Ok(None),
        Given::Text(text) => {
            T::deserialize(serde::de::value::StringDeserializer::new(text)).map(Some)
        }
        Given::Whole(n) => T::deserialize(serde::de::value::I64Deserializer::new(n)).map(Some),
        Given::Float(n) => T::deserialize(serde::de::value::F64Deserializer::new(n)).map(Some),
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let text: Option<String> = unless_empty(deserializer)?;
    let read = |text: String| {
        Url::parse(&text)
            .map_err(|e| D::Error::custom(format!("not a URL ({e}); write http://host:port/path")))
    };
    text.map(read).transpose()
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a number")]
enum Given {
    Text(String),
    Whole(i64),
    Float(f64),
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = match Given::deserialize(deserializer)? {
            Given::Text(text) => text.trim().parse().ok(),
            Given::Whole(number) => u32::try_from(number).ok().and_then(NonZeroU32::new),
            Given::Float(_) => None,
        };
        number
            .map(Self)
            .ok_or_else(|| D::Error::custom("must be a whole number above zero"))
    }
}
