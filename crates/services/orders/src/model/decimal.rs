//! Quantities and prices: exact decimals greater than zero.

use postrider::decimal::Decimal;
use serde::{Deserialize, Serialize};

/// Maximum number of digits on either side of the decimal point; more than any market uses.
const MAX_DIGITS: u64 = 24;

/// A decimal greater than zero. `10`, `"10.00"` and `1e1` are the same, and have the same digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Decimal")]
pub struct PositiveDecimal(Decimal);

/// Why a decimal is not a valid quantity or price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDecimal {
    /// Zero or less.
    #[error("must be greater than zero")]
    NotPositive,
    /// Too large or too precise.
    #[error("has more than 24 digits before or after the decimal point")]
    TooLong,
}

impl TryFrom<Decimal> for PositiveDecimal {
    type Error = InvalidDecimal;

    fn try_from(decimal: Decimal) -> Result<Self, InvalidDecimal> {
        if decimal.is_zero() || decimal.is_negative() {
            return Err(InvalidDecimal::NotPositive);
        }
        if decimal.integer_digits().max(decimal.fraction_digits()) > MAX_DIGITS {
            return Err(InvalidDecimal::TooLong);
        }
        Ok(Self(decimal))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(text: &str) -> Result<PositiveDecimal, InvalidDecimal> {
        text.parse::<Decimal>().unwrap().try_into()
    }

    #[test]
    fn every_spelling_of_a_quantity_is_serialized_the_same() {
        for text in ["10", "10.0", "010", "1e1"] {
            let json = serde_json::to_string(&read(text).unwrap()).unwrap();
            assert_eq!(json, "\"10\"", "{text}");
        }
    }

    #[test]
    fn zero_and_less_and_too_many_digits_are_rejected() {
        for text in ["0", "0.00", "-1", "-0", "0e5"] {
            assert_eq!(read(text), Err(InvalidDecimal::NotPositive), "{text:?}");
        }
        for text in [
            "1e24",
            "1e-25",
            "1e999999999999",
            "1234567890123456789012345",
        ] {
            assert_eq!(read(text), Err(InvalidDecimal::TooLong), "{text:?}");
        }
        assert!(serde_json::from_str::<PositiveDecimal>("0").is_err());
    }
}
