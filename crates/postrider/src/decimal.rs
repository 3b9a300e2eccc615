//! Exact decimal numbers: the value of a text, never a float, never rounded.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A decimal number in its only normal form: `digits × 10^exponent`, without zeros at either end of the digits.
///
/// Two decimals are equal if their values are:
///
/// ```
/// use postrider::decimal::Decimal;
///
/// let price: Decimal = "12.50".parse()?;
/// assert_eq!(price, "1.25e1".parse()?);
/// assert_eq!(price.to_string(), "12.5");
/// # Ok::<(), postrider::decimal::ParseDecimalError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

/// The text is not a decimal number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a decimal number: write it like \"12.50\"")]
pub struct ParseDecimalError;

impl Decimal {
    /// The significant digits. Empty for zero.
    #[must_use]
    pub fn digits(&self) -> &str {
        &self.digits
    }

    /// Is it zero?
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// Is it less than zero?
    #[must_use]
    pub const fn is_negative(&self) -> bool {
        self.negative
    }

    /// Number of digits before the decimal point; 0 if the absolute value is less than one.
    #[must_use]
    pub fn integer_digits(&self) -> u64 {
        let count = length(&self.digits).saturating_add(self.exponent);
        u64::try_from(count).unwrap_or(0)
    }

    /// Number of digits after the decimal point.
    #[must_use]
    pub fn fraction_digits(&self) -> u64 {
        u64::try_from(self.exponent.saturating_neg()).unwrap_or(0)
    }
}

impl FromStr for Decimal {
    type Err = ParseDecimalError;

    /// Reads an optional minus, digits, an optional fraction and an optional exponent. Leading zeros are allowed.
    fn from_str(text: &str) -> Result<Self, ParseDecimalError> {
        let (negative, text) = text
            .strip_prefix('-')
            .map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
        let exponent_digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if ![whole, fraction, exponent_digits]
            .into_iter()
            .all(is_number)
        {
            return Err(ParseDecimalError);
        }
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let significant = digits.trim_end_matches('0');
        if significant.is_empty() {
            return Ok(Self {
                negative: false,
                digits: String::new(),
                exponent: 0,
            });
        }
        let trailing_zeros = length(digits) - length(significant);
        // An exponent beyond the range of integers is beyond the range of doubles and of every limit, too.
        let limit = if exponent.starts_with('-') {
            i64::MIN
        } else {
            i64::MAX
        };
        Ok(Self {
            negative,
            digits: significant.to_owned(),
            exponent: exponent
                .parse::<i64>()
                .unwrap_or(limit)
                .saturating_add(trailing_zeros)
                .saturating_sub(length(fraction)),
        })
    }
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

impl fmt::Display for Decimal {
    /// Plain notation without needless zeros; with an exponent if that would take more than 100 digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_DIGITS: u64 = 100;
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.negative {
            f.write_str("-")?;
        }
        let digits = self.digits.as_str();
        if self.integer_digits().max(self.fraction_digits()) > MAX_DIGITS {
            return write!(f, "{digits}e{}", self.exponent);
        }
        let zeros = |count: u64| "0".repeat(usize::try_from(count).unwrap_or_default());
        let point = usize::try_from(self.integer_digits()).unwrap_or_default();
        match digits.split_at_checked(point) {
            None | Some((_, "")) => write!(f, "{digits:0<point$}"),
            Some(("", _)) => {
                let missing = self.fraction_digits() - digits.len() as u64;
                write!(f, "0.{}{digits}", zeros(missing))
            }
            Some((whole, fraction)) => write!(f, "{whole}.{fraction}"),
        }
    }
}

impl Serialize for Decimal {
    /// As a string.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    /// From a JSON string or number.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_text(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The text of a JSON number, written as a string or a number. A number is never read as a double.
pub fn number_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let text = raw.get();
    if text.starts_with('"') {
        return serde_json::from_str(text).map_err(D::Error::custom);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn normal(text: &str) -> String {
        text.parse::<Decimal>().unwrap().to_string()
    }

    #[test]
    fn every_spelling_of_a_decimal_has_one_normal_form() {
        for text in ["10", "10.0", "010", "1e1", "1E+1", "100e-1", "0.1e2"] {
            assert_eq!(normal(text), "10", "{text}");
        }
        for text in ["12.5", "12.50", "0012.500", "1.25e1", "1250E-2"] {
            assert_eq!(normal(text), "12.5", "{text}");
        }
        for text in ["0", "-0", "0.00", "0e5", "0e99999999999999999999"] {
            assert_eq!(normal(text), "0", "{text}");
        }
        assert_eq!(normal("-0.00010"), "-0.0001");
        assert_eq!(normal("1e-4"), "0.0001");
        assert_eq!(normal("120e2"), "12000");
        assert_eq!(normal("9007199254740993"), "9007199254740993");
        assert_eq!(normal("0.10000000000000000001"), "0.10000000000000000001");
        assert_eq!(normal("1e999999999999"), "1e999999999999");
        assert_ne!("-1".parse::<Decimal>(), "1".parse::<Decimal>());
    }

    #[test]
    fn digits_are_counted_on_both_sides_of_the_point() {
        let count = |text: &str| {
            let decimal: Decimal = text.parse().unwrap();
            (decimal.integer_digits(), decimal.fraction_digits())
        };
        assert_eq!(count("0"), (0, 0));
        assert_eq!(count("12.50"), (2, 1));
        assert_eq!(count("1200"), (4, 0));
        assert_eq!(count("0.0012"), (0, 4));
        assert!(count("1e99999999999999999999").0 > 1_000_000);
        assert!(count("1e-99999999999999999999").1 > 1_000_000);
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in [
            "", "x", "-", "1.", ".5", "1e", "1e+", "1_0", "+1", "NaN", "1.2.3", "0x10", " 1",
            "--1", "1e1.5", "1ee1",
        ] {
            assert_eq!(text.parse::<Decimal>(), Err(ParseDecimalError), "{text:?}");
        }
    }

    #[test]
    fn a_json_number_is_read_by_its_text_and_not_as_a_double() {
        let read = |json: &str| serde_json::from_str::<Decimal>(json).unwrap().to_string();
        assert_eq!(read("0.10000000000000001"), "0.10000000000000001");
        assert_eq!(read("\"9007199254740993.5\""), "9007199254740993.5");
        assert!(serde_json::from_str::<Decimal>("null").is_err());
        assert!(serde_json::from_str::<Decimal>("[1]").is_err());
    }
}
