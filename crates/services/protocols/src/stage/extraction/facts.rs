//! Facts in a criterion: ages, measurements, and whether it is negated.

mod ages;
mod measures;
mod numbers;

pub use ages::age;
pub use measures::measures;

/// Words that negate.
const NEGATIONS: &[&str] = &[
    "no",
    "not",
    "without",
    "never",
    "neither",
    "nor",
    "cannot",
    "absence",
    "lack",
    "lacking",
    "unable",
    "none",
    "unwilling",
    "inability",
    "absent",
    "free",
    "can't",
    "won't",
    "doesn't",
    "don't",
    "didn't",
    "hasn't",
    "haven't",
    "isn't",
    "aren't",
];

/// Phrases with a negation that set a limit or nothing.
const NOT_NEGATIONS: &[&str] = &[
    "no more than",
    "no less than",
    "no later than",
    "no earlier than",
    "no greater than",
    "no fewer than",
    "no longer than",
    "no older than",
    "no younger than",
    "not more than",
    "not less than",
    "not later than",
    "not earlier than",
    "not greater than",
    "not fewer than",
    "not exceeding",
    "not exceed",
    "not older than",
    "not younger than",
    "not limited to",
    "whether or not",
    "not only",
    "not longer than",
    "if not",
    "does not exceed",
];

/// Does the text state what must not be the case?
#[must_use]
pub fn is_negated(text: &str) -> bool {
    let lower = text.to_lowercase().replace('’', "'");
    let mut text = lower.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in NOT_NEGATIONS {
        text = text.replace(words, " ");
    }
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .collect();
    words.iter().enumerate().any(|(at, word)| match *word {
        "free" => matches!(words.get(at + 1), Some(&("of" | "from"))),
        // "No. 4", "no 4": a number.
        "no" => words
            .get(at + 1)
            .is_some_and(|next| !next.starts_with(|c: char| c.is_ascii_digit())),
        word => NEGATIONS.contains(&word),
    })
}

#[cfg(test)]
mod tests {
    use super::is_negated;

    #[test]
    fn negation_is_distinguished_from_a_limit() {
        for text in [
            "No prior chemotherapy",
            "Patients who have not received insulin",
            "Free of symptoms for 4 weeks",
            "Absence of metastases",
            "Unable to swallow tablets",
            "Women who don’t use contraception",
        ] {
            assert!(is_negated(text), "{text}");
        }
        for text in [
            "No more than one prior line",
            "Bilirubin not exceeding 2 mg/dL",
            "Including but not limited to asthma",
            "Whether or not treated",
            "Protocol no. 4",
            "Known allergy",
            "Nodules larger than 1 cm",
        ] {
            assert!(!is_negated(text), "{text}");
        }
    }
}
