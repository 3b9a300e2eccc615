//! Whether a JSON number keeps its value when it is read.

use postrider::decimal::Decimal;

/// No double needs more digits than this to be written out in full.
const MAX_DIGITS: usize = 767;

/// Whether the JSON number `text` keeps its value as a 64-bit integer or as a double. `0.1` does; `0.10000000000000000001` and
/// `18446744073709551617` don't, nor do numbers that overflow or underflow.
///
/// A double has many faithful texts: programs write its shortest one, or one with 17 digits, or all digits. What they have in
/// common is that the double, rounded to the same number of digits, is that text. Where two shortest texts are equally near,
/// writers differ; both forms that Rust knows count.
pub(super) fn is_exact(text: &str) -> bool {
    if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() {
        return true;
    }
    let Ok(double) = text.parse::<f64>() else {
        return false;
    };
    let Ok(meant) = text.parse::<Decimal>() else {
        return false;
    };
    let digits = meant.digits().len();
    if !double.is_finite() || digits > MAX_DIGITS {
        return false;
    }
    let precision = digits.saturating_sub(1);
    let is_meant = |text: String| text.parse().as_ref() == Ok(&meant);
    is_meant(format!("{double:.precision$e}")) || is_meant(format!("{double:e}"))
}

#[cfg(test)]
mod tests {
    use super::is_exact;

    #[test]
    fn numbers_that_keep_their_value_are_exact() {
        for exact in [
            "0",
            "-0",
            "1",
            "-1",
            "0.1",
            "1e3",
            "1E+3",
            "1.0",
            "1.50",
            "100e-2",
            "1e308",
            "5e-324",
            "9007199254740993",
            "18446744073709551615",
            "-9223372036854775808",
            "0e999999999999999999999",
            "0.0000",
            "123456.789",
            "0.10000000000000001",
            "0.1000000000000000055511151231257827",
            "867871361996718.2",
            "867871361996718.3",
            "867871361996718.25",
            "18446744073709551616",
            "1e22",
            "1e23",
            "2.2250738585072014e-308",
        ] {
            assert!(is_exact(exact), "{exact}");
        }
        for inexact in [
            "18446744073709551617",
            "867871361996718.21",
            "0.1000000000000000055511151231257826",
            "9007199254740993.0",
            "0.10000000000000000001",
            "1e400",
            "1e-400",
            "-9223372036854775809",
            "1e99999999999999999999",
            "3.14159265358979323846",
        ] {
            assert!(!is_exact(inexact), "{inexact}");
        }
    }
}
