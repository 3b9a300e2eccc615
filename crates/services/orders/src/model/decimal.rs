//! Exact positive decimals: quantities and prices, never rounded.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::value::RawValue;

/// More digits than any market writes, on either side of the point.
const MOST_DIGITS: i64 = 24;

/// A number above zero, kept as its one canonical text: no exponent, no needless zeros.
///
/// `10`, `"10.00"` and `1e1` are the same decimal, and have the same digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Decimal(String);

/// Why a text is no quantity or price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotADecimal {
    /// Not a number.
    #[error("is no decimal number: write it like \"12.50\"")]
    Malformed,
    /// Zero or less.
    #[error("must be more than zero")]
    NotPositive,
    /// Too large or too fine.
    #[error("has more than 24 digits before or after the point")]
    TooLong,
}

impl Decimal {
    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Decimal {
    type Err = NotADecimal;

    fn from_str(text: &str) -> Result<Self, NotADecimal> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = match mantissa.split_once('.') {
            Some((_, "")) => return Err(NotADecimal::Malformed),
            Some(parts) => parts,
            None => (mantissa, ""),
        };
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
            return Err(NotADecimal::Malformed);
        }
        let digits = format!("{whole}{fraction}");
        let significant = digits.trim_start_matches('0');
        if significant.is_empty() || negative {
            return Err(NotADecimal::NotPositive);
        }
        let significant = significant.trim_end_matches('0');
        let dropped = digits.trim_end_matches('0').len();
        let length = |text: &str| i64::try_from(text.len()).map_err(|_| NotADecimal::TooLong);
        // Where the point stands, counted from the first significant digit.
        let point = length(whole)? + exponent - length(&digits[..dropped])? + length(significant)?;
        place(significant, point).map(Self)
    }
}

fn read_exponent(text: &str) -> Result<i64, NotADecimal> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotADecimal::Malformed);
    }
    // One that is too long to be read is far beyond the limit anyway.
    text.parse::<i32>()
        .map(i64::from)
        .map_err(|_| NotADecimal::TooLong)
}

/// Writes the digits with the point behind the first `point` of them.
fn place(digits: &str, point: i64) -> Result<String, NotADecimal> {
    let count = i64::try_from(digits.len()).map_err(|_| NotADecimal::TooLong)?;
    if point > MOST_DIGITS || count - point > MOST_DIGITS {
        return Err(NotADecimal::TooLong);
    }
    let zeros = |n: i64| "0".repeat(usize::try_from(n).unwrap_or_default());
    Ok(match usize::try_from(point) {
        Ok(0) | Err(_) => format!("0.{}{digits}", zeros(-point)),
        Ok(whole) if whole >= digits.len() => format!("{digits}{}", zeros(point - count)),
        Ok(whole) => format!("{}.{}", &digits[..whole], &digits[whole..]),
    })
}

impl<'de> Deserialize<'de> for Decimal {
    /// From a string or a number; of a number its text counts, not the double that it would become.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        let quoted: String;
        let number = if text.starts_with('"') {
            quoted = serde_json::from_str(text).map_err(D::Error::custom)?;
            quoted.as_str()
        } else {
            text
        };
        number.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<Decimal>().unwrap().to_string()
    }

    #[test]
    fn every_spelling_of_a_decimal_has_one_canonical_text() {
        for text in ["10", "10.0", "010", "1e1", "1E+1", "100e-1", "0.1e2"] {
            assert_eq!(canonical(text), "10", "{text}");
        }
        for text in ["12.5", "12.50", "0012.500", "1.25e1", "1250E-2"] {
            assert_eq!(canonical(text), "12.5", "{text}");
        }
        assert_eq!(canonical("0.00010"), "0.0001");
        assert_eq!(canonical("1e-4"), "0.0001");
        assert_eq!(canonical("9007199254740993"), "9007199254740993");
        assert_eq!(
            canonical("0.10000000000000000001"),
            "0.10000000000000000001"
        );
    }

    #[test]
    fn what_is_no_positive_decimal_is_refused() {
        for text in [
            "", "x", "1.", ".5", "1e", "1_0", "+1", "NaN", "1.2.3", "0x10", " 1", "--1",
        ] {
            assert_eq!(
                text.parse::<Decimal>(),
                Err(NotADecimal::Malformed),
                "{text:?}"
            );
        }
        for text in ["0", "0.00", "-1", "-0", "0e5"] {
            assert_eq!(
                text.parse::<Decimal>(),
                Err(NotADecimal::NotPositive),
                "{text:?}"
            );
        }
        for text in [
            "1e24",
            "1e-25",
            "1e999999999999",
            "1234567890123456789012345",
        ] {
            assert_eq!(
                text.parse::<Decimal>(),
                Err(NotADecimal::TooLong),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_number_is_read_by_its_text_and_not_as_a_double() {
        let read = |json: &str| serde_json::from_str::<Decimal>(json).unwrap().to_string();
        assert_eq!(read("0.10000000000000001"), "0.10000000000000001");
        assert_eq!(read("\"9007199254740993.5\""), "9007199254740993.5");
        assert!(serde_json::from_str::<Decimal>("null").is_err());
        assert!(serde_json::from_str::<Decimal>("[1]").is_err());
    }
}
