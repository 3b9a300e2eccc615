//! Settings that all services share: optional text, delays, leases, addresses, and breaker overrides.

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use url::Url;

use crate::breaker;

/// A delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Delay(#[serde(with = "crate::internal::duration")] pub Duration);

/// A `lease` setting.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// How long a lost worker keeps its items.
    #[serde(with = "crate::internal::duration")]
    pub seconds: Duration,
}

impl Lease {
    /// What is wrong with the value, if anything.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        let allowed = Duration::from_millis(100)..=Duration::from_secs(86_400);
        (!allowed.contains(&self.seconds)).then(|| "must be between 0.1 s and one day".to_owned())
    }
}

/// A `breaker` setting: overrides of the common breaker settings.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakerOverride {
    /// Defaults to `breaker.threshold`.
    #[serde(deserialize_with = "unless_empty")]
    pub threshold: Option<Threshold>,
    /// Defaults to `breaker.open_for`.
    #[serde(deserialize_with = "unless_empty")]
    pub open_for: Option<Delay>,
}

impl BreakerOverride {
    /// Applies the overrides to the common settings.
    #[must_use]
    pub fn over(&self, common: breaker::Settings) -> breaker::Settings {
        breaker::Settings {
            threshold: self.threshold.map_or(common.threshold, |t| t.0),
            open_for: self.open_for.map_or(common.open_for, |delay| delay.0),
        }
    }
}

/// A positive number, or its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold(NonZeroU32);

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = match Given::deserialize(deserializer)? {
            Given::Text(text) => text.trim().parse().ok(),
            Given::Whole(number) => u32::try_from(number).ok().and_then(NonZeroU32::new),
            Given::Float(_) => None,
        };
        number
            .map(Self)
            .ok_or_else(|| D::Error::custom("must be a whole number greater than zero"))
    }
}

/// Reads an empty text as "not set".
pub fn unless_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    match Given::deserialize(deserializer)? {
        Given::Text(text) if text.is_empty() => Ok(None),
        Given::Text(text) => {
            T::deserialize(serde::de::value::StringDeserializer::new(text)).map(Some)
        }
        Given::Whole(n) => T::deserialize(serde::de::value::I64Deserializer::new(n)).map(Some),
        Given::Float(n) => T::deserialize(serde::de::value::F64Deserializer::new(n)).map(Some),
    }
}

/// Reads an address, or an empty text for none.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let text: Option<String> = unless_empty(deserializer)?;
    let read = |text: String| {
        Url::parse(&text).map_err(|e| {
            D::Error::custom(format!("not a URL ({e}); write scheme://host:port/path"))
        })
    };
    text.map(read).transpose()
}

/// What is wrong with an HTTP address, if anything.
#[must_use]
pub fn not_http(url: Option<&Url>) -> Option<String> {
    url.filter(|url| !matches!(url.scheme(), "http" | "https"))
        .map(|_| "must start with http:// or https://".to_owned())
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a number")]
enum Given {
    Text(String),
    Whole(i64),
    Float(f64),
}
