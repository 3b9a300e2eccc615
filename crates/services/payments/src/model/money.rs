//! Exact money: whole minor units of a currency, never a float, never rounded.

use std::{fmt, str::FromStr};

use postrider::decimal::{Decimal, number_text};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::Currency;

/// Maximum number of digits on either side of the decimal point. Sums of very many such amounts fit into 128 bits.
const MAX_DIGITS: u64 = 18;

/// A decimal of zero or more, without a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// The digits without the decimal point and trailing zeros.
    digits: i128,
    places: u32,
}

/// Why a text is not an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAmount {
    /// Not a plain decimal.
    #[error("is not a decimal amount: write it like \"12.50\"")]
    Malformed,
    /// Below zero.
    #[error("must not be below zero")]
    Negative,
    /// Too large or too precise.
    #[error("has more than 18 digits before or after the decimal point")]
    TooLong,
}

impl FromStr for Amount {
    type Err = InvalidAmount;

    fn from_str(text: &str) -> Result<Self, InvalidAmount> {
        let decimal: Decimal = text.parse().map_err(|_| InvalidAmount::Malformed)?;
        if text.contains(['e', 'E']) {
            return Err(InvalidAmount::Malformed);
        }
        if decimal.integer_digits().max(decimal.fraction_digits()) > MAX_DIGITS {
            return Err(InvalidAmount::TooLong);
        }
        if decimal.is_negative() {
            return Err(InvalidAmount::Negative);
        }
        let places =
            u32::try_from(decimal.fraction_digits()).map_err(|_| InvalidAmount::TooLong)?;
        let digits = decimal.to_string().replace('.', "");
        let digits = digits.parse().map_err(|_| InvalidAmount::TooLong)?;
        Ok(Self { digits, places })
    }
}

impl<'de> Deserialize<'de> for Amount {
    /// From a JSON string or number; a number is never read as a double.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_text(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// An exact amount in minor units of a currency. Entries can be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Money {
    /// Number of minor units, such as cents.
    pub minor: i128,
    /// The currency.
    pub currency: Currency,
}

/// The amount has more decimal places than its currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("has too many decimal places: {currency} has {places}", places = currency.places())]
pub struct TooManyDecimalPlaces {
    currency: Currency,
}

impl Money {
    /// This amount of this currency, exactly.
    pub fn new(amount: Amount, currency: Currency) -> Result<Self, TooManyDecimalPlaces> {
        let missing = currency
            .places()
            .checked_sub(amount.places)
            .ok_or(TooManyDecimalPlaces { currency })?;
        // At most 18 digits and 4 places, so this can't overflow.
        let minor = amount.digits * 10_i128.pow(missing);
        Ok(Self { minor, currency })
    }

    /// Reads an amount as the database stores it, with any sign.
    #[must_use]
    pub fn from_stored(text: &str, currency: &str) -> Option<Self> {
        let currency = Currency::new(currency)?;
        let (sign, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text),
        };
        let money = Self::new(unsigned.parse().ok()?, currency).ok()?;
        Some(Self {
            minor: sign * money.minor,
            currency,
        })
    }
}

impl fmt::Display for Money {
    /// The plain decimal with all decimal places of the currency, for the database and for clients.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.currency.places() as usize;
        let sign = if self.minor < 0 { "-" } else { "" };
        let digits = format!("{:0>width$}", self.minor.unsigned_abs(), width = places + 1);
        let (whole, fraction) = digits.split_at(digits.len() - places);
        if places == 0 {
            write!(f, "{sign}{whole}")
        } else {
            write!(f, "{sign}{whole}.{fraction}")
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn money(text: &str, currency: &str) -> Result<String, TooManyDecimalPlaces> {
        let amount: Amount = text.parse().unwrap();
        Money::new(amount, Currency::new(currency).unwrap()).map(|money| money.to_string())
    }

    #[test]
    fn every_spelling_of_an_amount_is_the_same_money() {
        for text in ["12.5", "12.50", "012.5000", "12.500000000000000000"] {
            assert_eq!(money(text, "USD").unwrap(), "12.50", "{text}");
        }
        assert_eq!(money("0", "USD").unwrap(), "0.00");
        assert_eq!(money("0.01", "USD").unwrap(), "0.01");
        assert_eq!(money("7.000", "JPY").unwrap(), "7");
        assert_eq!(money("1.5", "KWD").unwrap(), "1.500");
    }

    #[test]
    fn excess_decimal_places_are_rejected_and_never_rounded() {
        assert!(money("0.001", "USD").is_err());
        assert!(money("0.5", "JPY").is_err());
        assert!(money("0.0001", "KWD").is_err());
        assert_eq!(money("0.0001", "CLF").unwrap(), "0.0001");
    }

    #[test]
    fn invalid_amounts_are_rejected() {
        for text in [
            "", "x", "1.", ".5", "1e2", "+1", " 1", "1,5", "--1", "NaN", "1.2.3",
        ] {
            assert_eq!(
                text.parse::<Amount>(),
                Err(InvalidAmount::Malformed),
                "{text:?}"
            );
        }
        assert_eq!("-1".parse::<Amount>(), Err(InvalidAmount::Negative));
        assert_eq!(
            "1234567890123456789".parse::<Amount>(),
            Err(InvalidAmount::TooLong)
        );
    }

    #[test]
    fn a_json_number_is_read_exactly_and_not_as_a_double() {
        let amount: Amount = serde_json::from_str("99999999999999999.99").unwrap();
        let money = Money::new(amount, Currency::new("USD").unwrap()).unwrap();
        assert_eq!(money.to_string(), "99999999999999999.99");
    }

    proptest! {
        #[test]
        fn stored_amounts_are_read_back(minor in -10_i128.pow(20)..10_i128.pow(20), currency in "USD|JPY|KWD|CLF") {
            let money = Money { minor, currency: Currency::new(&currency).unwrap() };
            prop_assume!(minor.unsigned_abs() / 10_u128.pow(money.currency.places()) < 10_u128.pow(18));
            prop_assert_eq!(Money::from_stored(&money.to_string(), &currency), Some(money));
        }
    }
}
