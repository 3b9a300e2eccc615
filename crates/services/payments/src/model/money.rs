//! Exact money: whole minor units of a currency, never a float, never rounded.

use std::{fmt, str::FromStr};

use postrider::decimal::{Decimal, number_text};
use serde::{Deserialize, Deserializer, de::Error as _};

use super::Currency;

/// Maximum number of digits on either side of the decimal point. Sums of very many such amounts fit into 128 bits.
const MAX_DIGITS: u64 = 18;

/// A decimal of zero or more, as written; of which currency is said elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// Without the point and without needless zeros behind it.
    digits: i128,
    places: u32,
}

/// Why a text is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAmount {
    /// Not a plain decimal.
    #[error("is no decimal amount: write it like \"12.50\"")]
    Malformed,
    /// Below zero.
    #[error("must not be below zero")]
    Negative,
    /// Too large or too fine.
    #[error("has more than 18 digits before or after the point")]
    TooLong,
}

impl FromStr for Amount {
    type Err = NotAnAmount;

    fn from_str(text: &str) -> Result<Self, NotAnAmount> {
        let decimal: Decimal = text.parse().map_err(|_| NotAnAmount::Malformed)?;
        if text.contains(['e', 'E']) {
            return Err(NotAnAmount::Malformed);
        }
        if decimal.integer_digits().max(decimal.fraction_digits()) > MAX_DIGITS {
            return Err(NotAnAmount::TooLong);
        }
        if decimal.is_negative() {
            return Err(NotAnAmount::Negative);
        }
        let places = u32::try_from(decimal.fraction_digits()).map_err(|_| NotAnAmount::TooLong)?;
        let digits = decimal.to_string().replace('.', "");
        let digits = digits.parse().map_err(|_| NotAnAmount::TooLong)?;
        Ok(Self { digits, places })
    }
}

impl<'de> Deserialize<'de> for Amount {
    /// From a JSON string or number; a number is never read as a double.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        number_text(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// So many minor units of a currency; may be below zero in the books.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Money {
    /// Cents, for a currency that has them.
    pub minor: i128,
    /// Of which currency.
    pub currency: Currency,
}

/// The amount is written finer than its currency is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is too fine: {currency} has {places} decimal places", places = currency.places())]
pub struct TooFine {
    currency: Currency,
}

impl Money {
    /// This amount of this currency, exactly.
    pub fn new(amount: Amount, currency: Currency) -> Result<Self, TooFine> {
        let missing = currency
            .places()
            .checked_sub(amount.places)
            .ok_or(TooFine { currency })?;
        // At most 18 digits and 4 places: far from the edge.
        let minor = amount.digits * 10_i128.pow(missing);
        Ok(Self { minor, currency })
    }

    /// What the database has stored as text, with any sign.
    #[must_use]
    pub fn stored(text: &str, currency: &str) -> Option<Self> {
        let currency = Currency::of(currency)?;
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
    /// The plain decimal with all places of the currency: what the database reads, and what clients are shown.
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

    fn money(text: &str, currency: &str) -> Result<String, TooFine> {
        let amount: Amount = text.parse().unwrap();
        Money::new(amount, Currency::of(currency).unwrap()).map(|money| money.to_string())
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
    fn what_is_finer_than_its_currency_is_refused_and_never_rounded() {
        assert!(money("0.001", "USD").is_err());
        assert!(money("0.5", "JPY").is_err());
        assert!(money("0.0001", "KWD").is_err());
        assert_eq!(money("0.0001", "CLF").unwrap(), "0.0001");
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in [
            "", "x", "1.", ".5", "1e2", "+1", " 1", "1,5", "--1", "NaN", "1.2.3",
        ] {
            assert_eq!(
                text.parse::<Amount>(),
                Err(NotAnAmount::Malformed),
                "{text:?}"
            );
        }
        assert_eq!("-1".parse::<Amount>(), Err(NotAnAmount::Negative));
        assert_eq!(
            "1234567890123456789".parse::<Amount>(),
            Err(NotAnAmount::TooLong)
        );
    }

    #[test]
    fn a_number_is_read_by_its_text_and_not_as_a_double() {
        let amount: Amount = serde_json::from_str("99999999999999999.99").unwrap();
        let money = Money::new(amount, Currency::of("USD").unwrap()).unwrap();
        assert_eq!(money.to_string(), "99999999999999999.99");
    }

    proptest! {
        #[test]
        fn what_is_stored_is_read_back(minor in -10_i128.pow(20)..10_i128.pow(20), currency in "USD|JPY|KWD|CLF") {
            let money = Money { minor, currency: Currency::of(&currency).unwrap() };
            prop_assume!(minor.unsigned_abs() / 10_u128.pow(money.currency.places()) < 10_u128.pow(18));
            prop_assert_eq!(Money::stored(&money.to_string(), &currency), Some(money));
        }
    }
}
