//! Currencies and their decimal places (ISO 4217).

use std::fmt;

/// Active codes by number of decimal places.
const BY_PLACES: [(u8, &str); 4] = [
    (
        0,
        "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    ),
    (
        2,
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF \
         CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG \
         HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR \
         MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD \
         SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG \
         YER ZAR ZMW ZWG",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

/// A known currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency {
    code: [u8; 3],
    places: u8,
}

impl Currency {
    /// The currency with this code, three capital letters.
    #[must_use]
    pub fn new(code: &str) -> Option<Self> {
        let bytes: [u8; 3] = code.as_bytes().try_into().ok()?;
        BY_PLACES
            .iter()
            .find(|(_, codes)| codes.split_ascii_whitespace().any(|known| known == code))
            .map(|(places, _)| Self {
                code: bytes,
                places: *places,
            })
    }

    /// Its code.
    #[must_use]
    pub fn code(&self) -> &str {
        // Only codes of the list above get here.
        std::str::from_utf8(&self.code).unwrap_or_default()
    }

    /// Number of decimal places of an amount.
    #[must_use]
    pub const fn places(self) -> u32 {
        self.places as u32
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_currencies_have_their_decimal_places_and_unknown_codes_are_rejected() {
        let places = |code| Currency::new(code).map(Currency::places);
        assert_eq!(places("JPY"), Some(0));
        assert_eq!(places("USD"), Some(2));
        assert_eq!(places("KWD"), Some(3));
        assert_eq!(places("CLF"), Some(4));
        for wrong in ["usd", "US", "USDX", "XXX", "", "US ", "D E"] {
            assert_eq!(places(wrong), None, "{wrong:?}");
        }
    }
}
