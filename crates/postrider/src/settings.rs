//! Forms in which the settings of a service are written, shared by all of them: an empty text for "not set", waits,
//! leases, addresses, and what differs from the common breaker.

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Deserializer, de::Error as _};
use url::Url;

use crate::breaker;

/// One wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Delay(#[serde(with = "crate::duration")] pub Duration);

/// `lease`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// How long a lost worker keeps its items.
    #[serde(with = "crate::duration")]
    pub seconds: Duration,
}

impl Lease {
    /// What is wrong with it.
    #[must_use]
    pub fn contradiction(&self) -> Option<String> {
        let allowed = Duration::from_millis(100)..=Duration::from_secs(86_400);
        (!allowed.contains(&self.seconds)).then(|| "must be between 0.1 s and a day".to_owned())
    }
}

/// `breaker`: when a dependency is left alone, where that differs from the common settings.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BreakerOverride {
    /// Absent: `breaker.threshold`.
    #[serde(deserialize_with = "unless_empty")]
    pub threshold: Option<Threshold>,
    /// Absent: `breaker.open_for`.
    #[serde(deserialize_with = "unless_empty")]
    pub open_for: Option<Delay>,
}

impl BreakerOverride {
    /// The breaker's settings on top of the common ones.
    #[must_use]
    pub fn over(&self, common: breaker::Settings) -> breaker::Settings {
        breaker::Settings {
            threshold: self.threshold.map_or(common.threshold, |t| t.0),
            open_for: self.open_for.map_or(common.open_for, |delay| delay.0),
        }
    }
}

/// So many signs in a row; as a number or its text.
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
            .ok_or_else(|| D::Error::custom("must be a whole number above zero"))
    }
}

/// An empty text means "not set".
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

/// An address, or an empty text for none.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let text: Option<String> = unless_empty(deserializer)?;
    let read = |text: String| {
        Url::parse(&text).map_err(|e| {
            D::Error::custom(format!("not a URL ({e}); write scheme://host:port/path"))
        })
    };
    text.map(read).transpose()
}

/// What is wrong with an address that HTTP is to be spoken to.
#[must_use]
pub fn not_http(url: Option<&Url>) -> Option<String> {
    url.filter(|url| !matches!(url.scheme(), "http" | "https"))
        .map(|_| "must begin with http:// or https://".to_owned())
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a number")]
enum Given {
    Text(String),
    Whole(i64),
    Float(f64),
}
