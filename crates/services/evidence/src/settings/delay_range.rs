//! A random delay: a range such as `"2s-5s"`, or a fixed duration.

use std::time::Duration;

use postrider::internal::settings::Delay;
use serde::{Deserialize, Deserializer, de::Error as _};

/// A range of delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelayRange {
    from: Duration,
    to: Duration,
}

impl DelayRange {
    /// The delay for a sample between 0 and 1.
    #[must_use]
    pub fn draw(self, sample: f64) -> Duration {
        let span = self.to.saturating_sub(self.from);
        self.from + span.mul_f64(sample.clamp(0.0, 1.0))
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a duration such as \"2s\", or two such as \"2s-5s\""
)]
enum Form {
    Text(String),
    Number(f64),
}

impl<'de> Deserialize<'de> for DelayRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |text: &str| {
            let text = serde::de::value::StrDeserializer::new(text.trim());
            Delay::deserialize(text).map(|delay| delay.0)
        };
        let (from, to) = match Form::deserialize(deserializer)? {
            Form::Number(seconds) => {
                let one = Delay::deserialize(serde::de::value::F64Deserializer::new(seconds))?.0;
                (one, one)
            }
            Form::Text(text) => match text.split_once('-') {
                Some((from, to)) => (read(from)?, read(to)?),
                None => {
                    let one = read(&text)?;
                    (one, one)
                }
            },
        };
        if to < from {
            return Err(D::Error::custom("the shorter delay comes first: \"2s-5s\""));
        }
        Ok(Self { from, to })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Option<DelayRange> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn a_delay_is_fixed_or_a_range() {
        let seconds = Duration::from_secs;
        let range = read("\"2s-5s\"").unwrap();
        assert_eq!((range.draw(0.0), range.draw(1.0)), (seconds(2), seconds(5)));
        assert_eq!(read("3").unwrap().draw(0.7), seconds(3));
        assert_eq!(read("0.5").unwrap().draw(0.7), Duration::from_millis(500));
        assert_eq!(read("\"4s\"").unwrap().draw(0.7), seconds(4));
        assert_eq!(read("\"5s-2s\""), None);
        assert_eq!(read("\"soon\""), None);
    }
}
