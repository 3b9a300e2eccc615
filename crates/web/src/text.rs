//! Numbers and nouns as people read them, the same in the CLI, the console and the services' own sentences.

/// 1234567 as `1,234,567`.
#[must_use]
pub fn count(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    if number < 0 {
        text.push('-');
    }
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 file`, `2,000 files`. For nouns that take an `s`.
#[must_use]
pub fn plural(number: i64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (-1_234_567, "-1,234,567"),
        ] {
            assert_eq!(count(number), text);
        }
    }

    #[test]
    fn only_one_is_singular() {
        let nouns = [0, 1, 2, 1_000].map(|number| plural(number, "dead letter"));
        assert_eq!(
            nouns,
            [
                "0 dead letters",
                "1 dead letter",
                "2 dead letters",
                "1,000 dead letters"
            ]
        );
    }
}
