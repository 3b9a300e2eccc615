//! Values with their own format; an error says what was expected.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// An empty string means "not set".
pub(super) fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    T::deserialize(de::value::StringDeserializer::new(text)).map(Some)
}

/// A `postgres://` URL; printed without its password.
#[derive(Clone)]
pub struct DatabaseUrl(url::Url);

impl DatabaseUrl {
    /// The complete URL, for the driver only.
    pub fn expose(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::redact(self.0.as_str()))
    }
}

impl<'de> Deserialize<'de> for DatabaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let url = url::Url::parse(&text).map_err(|e| {
            de::Error::custom(format!(
                "not a URL ({e}); write postgres://user:password@host:5432/name"
            ))
        })?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            let scheme = url.scheme();
            return Err(de::Error::custom(format!(
                "{scheme}:// is not PostgreSQL; write postgres://user:password@host:5432/name"
            )));
        }
        sqlx::postgres::PgConnectOptions::from_str(url.as_str())
            .map_err(|e| de::Error::custom(format!("not a valid PostgreSQL URL: {e}")))?;
        Ok(Self(url))
    }
}

/// What is logged: a level, or levels per module.
#[derive(Debug, Clone)]
pub struct LogFilter(String);

impl LogFilter {
    /// The directives, for the subscriber.
    pub fn directives(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for LogFilter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // An unknown word alone would be taken as a module name and log nothing.
        let lone_word = !text.contains(['=', ',']);
        let parsed = tracing_subscriber::EnvFilter::builder().parse(&text);
        match parsed {
            Ok(_)
                if !lone_word
                    || tracing_subscriber::filter::LevelFilter::from_str(&text).is_ok() =>
            {
                Ok(Self(text))
            }
            _ => Err(de::Error::custom(format!(
                "{text:?} is not a log level; use error, warn, info, debug, trace or a list such as \"info,sqlx=warn\""
            ))),
        }
    }
}
