//! Whether a number survives being read.

/// No double needs more digits than this to be written out in full.
const MOST_DIGITS: usize = 767;

/// Whether the JSON number `text` keeps its value as a 64-bit integer or as a double. `0.1` does;
/// `0.10000000000000000001` and `18446744073709551617` do not, nor do numbers that overflow or
/// vanish.
///
/// A double has many faithful texts: programs write its shortest one, or one with 17 digits, or all
/// digits. What they have in common is that the double, rounded to as many digits, is that text.
/// Where two shortest texts are equally near, writers differ; both forms that Rust knows count.
pub(super) fn is_exact(text: &str) -> bool {
    if text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok() {
        return true;
    }
    let Ok(double) = text.parse::<f64>() else {
        return false;
    };
    let meant = Decimal::of(text);
    let digits = meant.digits.len();
    if !double.is_finite() || digits > MOST_DIGITS {
        return false;
    }
    let precision = digits.saturating_sub(1);
    meant == Decimal::of(&format!("{double:.precision$e}"))
        || meant == Decimal::of(&format!("{double:e}"))
}

/// A decimal number as its significant digits and the power of ten of the last of them.
#[derive(PartialEq, Eq)]
struct Decimal {
    digits: Vec<u8>,
    exponent: Option<i64>,
}

impl Decimal {
    fn of(text: &str) -> Self {
        let text = text.strip_prefix('-').unwrap_or(text);
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let fraction = mantissa.split_once('.').map_or("", |(_, after)| after);
        let mut digits: Vec<u8> = mantissa.bytes().filter(|byte| *byte != b'.').collect();
        let leading = digits.iter().take_while(|digit| **digit == b'0').count();
        digits.drain(..leading);
        let mut last = exponent
            .parse::<i64>()
            .ok()
            .and_then(|exponent| exponent.checked_sub(i64::try_from(fraction.len()).ok()?));
        while digits.last() == Some(&b'0') {
            digits.pop();
            last = last.and_then(|exponent| exponent.checked_add(1));
        }
        // Zero is zero whatever its exponent.
        let exponent = if digits.is_empty() { Some(0) } else { last };
        Self { digits, exponent }
    }
}

#[cfg(test)]
mod tests {
    use super::is_exact;

    #[test]
    fn numbers_that_survive_are_told_from_those_that_change() {
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
