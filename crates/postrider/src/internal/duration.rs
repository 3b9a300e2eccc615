//! Durations in configuration files: `"5m"`, `"1h 30m"`, or plain seconds.
//!
//! For `#[serde(with = "postrider::internal::duration")]`.

use std::{fmt, time::Duration};

use serde::{Deserializer, Serializer, de};

/// Reads `"500ms"`, `"5m"`, `90` or `0.5`.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_any(DurationVisitor)
}

/// Writes the form that [`deserialize`] reads.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*duration))
}

/// Parses a duration.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    de::Visitor::visit_str::<de::value::Error>(DurationVisitor, text).ok()
}

/// Formats a duration in the form that [`parse`] reads.
#[must_use]
pub fn format(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

struct DurationVisitor;

impl de::Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"500ms\", \"5m\" or a number of seconds")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        if let Ok(seconds) = text.trim().parse::<f64>() {
            return self.visit_f64(seconds);
        }
        humantime::parse_duration(text)
            .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Duration, E> {
        Ok(Duration::from_secs(seconds))
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
        u64::try_from(seconds)
            .map(Duration::from_secs)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(seconds), &self))
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Duration, E> {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| E::invalid_value(de::Unexpected::Float(seconds), &self))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, F64Deserializer, I64Deserializer, StrDeserializer};

    fn text(s: &str) -> Result<Duration, Error> {
        let deserializer: StrDeserializer<'_, Error> = s.into_deserializer();
        super::deserialize(deserializer)
    }

    #[test]
    fn words_and_plain_seconds_are_read() {
        assert_eq!(text("5m"), Ok(Duration::from_secs(300)));
        assert_eq!(text("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(text("0.5"), Ok(Duration::from_millis(500)));
        let half: F64Deserializer<Error> = 0.5.into_deserializer();
        assert_eq!(super::deserialize(half), Ok(Duration::from_millis(500)));
    }

    #[test]
    fn nonsense_and_negative_durations_are_refused() {
        assert!(text("soon").is_err());
        assert!(text("-3").is_err());
        assert!(text("NaN").is_err());
        let negative: I64Deserializer<Error> = (-3_i64).into_deserializer();
        assert!(super::deserialize(negative).is_err());
    }
}
