//! Numbers that are compared, with their units.

use super::numbers::{Piece, Token, tokens};
use crate::model::{Comparator, Measure};

/// Units as they are written and as they are shown; the longer before the shorter.
const UNITS: &[(&str, &str)] = &[
    ("ml/min/1.73 m2", "mL/min/1.73 m2"),
    ("ml/min/1.73 m²", "mL/min/1.73 m2"),
    ("ml/min/1.73m2", "mL/min/1.73 m2"),
    ("ml/min/1.73m²", "mL/min/1.73 m2"),
    ("times the upper limit of normal", "ULN"),
    ("times upper limit of normal", "ULN"),
    ("times the uln", "ULN"),
    ("times uln", "ULN"),
    ("x the upper limit of normal", "ULN"),
    ("x upper limit of normal", "ULN"),
    ("x the uln", "ULN"),
    ("x uln", "ULN"),
    ("xuln", "ULN"),
    ("uln", "ULN"),
    ("x 10^9/l", "10^9/L"),
    ("x10^9/l", "10^9/L"),
    ("x 10⁹/l", "10^9/L"),
    ("x10⁹/l", "10^9/L"),
    ("x 109/l", "10^9/L"),
    ("x109/l", "10^9/L"),
    ("x 10e9/l", "10^9/L"),
    ("x10e9/l", "10^9/L"),
    ("cells/µl", "cells/µL"),
    ("cells/ul", "cells/µL"),
    ("cells/mm3", "cells/mm3"),
    ("cells/mm³", "cells/mm3"),
    ("copies/ml", "copies/mL"),
    ("mmol/mol", "mmol/mol"),
    ("mmol/l", "mmol/L"),
    ("µmol/l", "µmol/L"),
    ("umol/l", "µmol/L"),
    ("ml/min", "mL/min"),
    ("mg/day", "mg/day"),
    ("mg/kg", "mg/kg"),
    ("mg/dl", "mg/dL"),
    ("mg/l", "mg/L"),
    ("ng/ml", "ng/mL"),
    ("pg/ml", "pg/mL"),
    ("kg/m2", "kg/m2"),
    ("kg/m²", "kg/m2"),
    ("kg/m^2", "kg/m2"),
    ("g/dl", "g/dL"),
    ("g/l", "g/L"),
    ("iu/l", "IU/L"),
    ("miu/ml", "mIU/mL"),
    ("u/l", "U/L"),
    ("mmhg", "mmHg"),
    ("mm hg", "mmHg"),
    ("/mm3", "/mm3"),
    ("/mm³", "/mm3"),
    ("/µl", "/µL"),
    ("/ul", "/µL"),
    ("beats per minute", "bpm"),
    ("bpm", "bpm"),
    ("msec", "ms"),
    ("ms", "ms"),
    ("hours", "hours"),
    ("hour", "hours"),
    ("days", "days"),
    ("day", "days"),
    ("weeks", "weeks"),
    ("week", "weeks"),
    ("months", "months"),
    ("month", "months"),
    ("years", "years"),
    ("year", "years"),
    ("percent", "%"),
    ("per cent", "%"),
    ("%", "%"),
    ("mcg", "µg"),
    ("µg", "µg"),
    ("mg", "mg"),
    ("kg", "kg"),
    ("ml", "mL"),
    ("cm", "cm"),
    ("mm", "mm"),
    ("points", "points"),
    ("g", "g"),
    ("l", "L"),
];

const COMPARISONS: &[(&[&str], Comparator)] = &[
    (&["no", "more", "than"], Comparator::AtMost),
    (&["not", "more", "than"], Comparator::AtMost),
    (&["no", "greater", "than"], Comparator::AtMost),
    (&["not", "greater", "than"], Comparator::AtMost),
    (&["no", "less", "than"], Comparator::AtLeast),
    (&["not", "less", "than"], Comparator::AtLeast),
    (&["no", "fewer", "than"], Comparator::AtLeast),
    (&["not", "exceeding"], Comparator::AtMost),
    (&["not", "exceed"], Comparator::AtMost),
    (&["at", "least"], Comparator::AtLeast),
    (&["minimum", "of"], Comparator::AtLeast),
    (&["a", "minimum"], Comparator::AtLeast),
    (&["at", "most"], Comparator::AtMost),
    (&["up", "to"], Comparator::AtMost),
    (&["maximum", "of"], Comparator::AtMost),
    (&["more", "than"], Comparator::Above),
    (&["greater", "than"], Comparator::Above),
    (&["higher", "than"], Comparator::Above),
    (&["longer", "than"], Comparator::Above),
    (&["less", "than"], Comparator::Below),
    (&["lower", "than"], Comparator::Below),
    (&["fewer", "than"], Comparator::Below),
    (&["exceeding"], Comparator::Above),
    (&["above"], Comparator::Above),
    (&["over"], Comparator::Above),
    (&["below"], Comparator::Below),
    (&["under"], Comparator::Below),
    (&["within"], Comparator::AtMost),
    (&["within", "the", "last"], Comparator::AtMost),
    (&["within", "the", "past"], Comparator::AtMost),
    (&["within", "the", "previous"], Comparator::AtMost),
];

/// The measurements in a text, in order.
#[must_use]
pub fn measures(text: &str) -> Vec<Measure> {
    let tokens = tokens(text);
    let mut found: Vec<Measure> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at]
            .number()
            .and_then(|value| read(text, &tokens, at, value))
        {
            Some((measures, next)) => {
                found.extend(measures);
                at = next;
            }
            None => at += 1,
        }
    }
    found
}

/// The measurement, or the two of a range, whose first number is at this token, and the next token.
fn read(text: &str, tokens: &[Token<'_>], at: usize, value: f64) -> Option<(Vec<Measure>, usize)> {
    let (front, start) = front(&tokens[..at]);
    let (unit, next) = unit(text, tokens, at + 1);
    // "7.0% and 10.5%" behind "between", "53 to 91 mmol/mol", "18-75 kg"
    if let Some(second) = range_end(tokens, start, next) {
        let (end_unit, after) = self::unit(text, tokens, second + 1);
        let upper = tokens[second].number()?;
        let shown = if end_unit.is_empty() { unit } else { end_unit };
        if upper > value && !shown.is_empty() {
            let words =
                |from: usize, to: usize| text[tokens[from].start..tokens[to - 1].end].to_owned();
            let measure = |comparator, value, text| Measure {
                text,
                comparator,
                value,
                unit: shown.to_owned(),
            };
            let measures = vec![
                measure(Comparator::AtLeast, value, words(at, next)),
                measure(Comparator::AtMost, upper, words(second, after)),
            ];
            return Some((measures, after));
        }
    }
    let (comparator, after) = match front {
        Some(comparator) => (comparator, next),
        None => behind(tokens, next)?,
    };
    // "at least one" without a unit counts things: only signs compare bare numbers.
    let by_sign = start < at && matches!(tokens[start].piece, Piece::Sign(_));
    if unit.is_empty() && !by_sign {
        return None;
    }
    let measure = Measure {
        text: text[tokens[start].start..tokens[after - 1].end].to_owned(),
        comparator,
        value,
        unit: unit.to_owned(),
    };
    Some((vec![measure], after))
}

/// The comparison before a number, and its start.
fn front(before: &[Token<'_>]) -> (Option<Comparator>, usize) {
    let end = before.len();
    let sign = |back: usize| match before.get(end.checked_sub(back)?)?.piece {
        Piece::Sign(sign) => Some(sign),
        _ => None,
    };
    match (sign(2), sign(1)) {
        (Some('>'), Some('=')) => return (Some(Comparator::AtLeast), end - 2),
        (Some('<'), Some('=')) => return (Some(Comparator::AtMost), end - 2),
        (_, Some('≥')) => return (Some(Comparator::AtLeast), end - 1),
        (_, Some('≤')) => return (Some(Comparator::AtMost), end - 1),
        (_, Some('>')) => return (Some(Comparator::Above), end - 1),
        (_, Some('<')) => return (Some(Comparator::Below), end - 1),
        (_, Some('=')) => return (Some(Comparator::Equal), end - 1),
        _ => {}
    }
    let fits = |words: &[&str]| {
        let start = end.checked_sub(words.len())?;
        let same = before[start..]
            .iter()
            .zip(words)
            .all(|(token, word)| token.is_word(word));
        same.then_some(start)
    };
    let best = COMPARISONS
        .iter()
        .filter_map(|(words, comparator)| Some((fits(words)?, *comparator)))
        .min_by_key(|(start, _)| *start);
    match best {
        Some((start, comparator)) => (Some(comparator), start),
        None => (None, end),
    }
}

/// "60% or more", "10 mg or less".
fn behind(tokens: &[Token<'_>], at: usize) -> Option<(Comparator, usize)> {
    let word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(word));
    if !word(at, "or") && !word(at, "and") {
        return None;
    }
    let any = |words: &[&str]| words.iter().any(|w| word(at + 1, w));
    if any(&["more", "greater", "higher", "above", "longer"]) {
        Some((Comparator::AtLeast, at + 2))
    } else if any(&["less", "lower", "fewer", "below", "shorter"]) {
        Some((Comparator::AtMost, at + 2))
    } else {
        None
    }
}

/// The position of the second number of a range.
fn range_end(tokens: &[Token<'_>], start: usize, at: usize) -> Option<usize> {
    let joint = tokens.get(at)?;
    let between = start > 0 && tokens[start - 1].is_word("between");
    let joins = joint.is_word("to")
        || ['-', '–', '—'].iter().any(|dash| joint.is_sign(*dash))
        || (between && joint.is_word("and"));
    let second = tokens.get(at + 1)?;
    (joins && second.number().is_some()).then_some(at + 1)
}

/// The unit after a number, in its usual spelling, and its end.
fn unit<'a>(text: &str, tokens: &[Token<'_>], at: usize) -> (&'a str, usize) {
    let Some(first) = tokens.get(at) else {
        return ("", at);
    };
    // No unit is longer than this.
    let rest = &text[first.start..text.floor_char_boundary(first.start + 48)];
    let rest = rest.to_lowercase().replace('×', "x").replace('μ', "µ");
    for (written, shown) in UNITS {
        let Some(after) = rest.strip_prefix(written) else {
            continue;
        };
        let inside_word = written.ends_with(char::is_alphanumeric)
            && after.starts_with(|c: char| c.is_alphanumeric());
        if inside_word {
            continue;
        }
        // Counted in characters, which correspond one to one in the lower-cased text.
        let length = written.chars().count();
        let end: usize = text[first.start..]
            .chars()
            .take(length)
            .map(char::len_utf8)
            .sum::<usize>()
            + first.start;
        let next = tokens
            .iter()
            .skip(at)
            .take_while(|token| token.start < end)
            .count();
        return (shown, at + next);
    }
    ("", at)
}

#[cfg(test)]
mod tests {
    use super::measures;

    fn found(text: &str) -> Vec<String> {
        measures(text)
            .into_iter()
            .map(|m| {
                let sign = serde_json::to_value(m.comparator).unwrap();
                format!("{} {} {}", sign.as_str().unwrap(), m.value, m.unit)
                    .trim_end()
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn measurements_are_read_in_many_spellings() {
        for (text, expected) in [
            (
                "HbA1c between 7.0% and 10.5% (53 to 91 mmol/mol)",
                vec![">= 7 %", "<= 10.5 %", ">= 53 mmol/mol", "<= 91 mmol/mol"],
            ),
            (
                "BMI >= 25.0 kg/m2 and < 45 kg/m2",
                vec![">= 25 kg/m2", "< 45 kg/m2"],
            ),
            ("metformin of at least 1500 mg/day", vec![">= 1500 mg/day"]),
            ("metformin ≥ 1,500 mg", vec![">= 1500 mg"]),
            ("eGFR < 45 mL/min/1.73 m2", vec!["< 45 mL/min/1.73 m2"]),
            (
                "ALT > 2.5 times the upper limit of normal",
                vec!["> 2.5 ULN"],
            ),
            ("Total bilirubin ≤ 1.5 × ULN", vec!["<= 1.5 ULN"]),
            ("Neutrophils ≥ 1.5 × 10^9/L", vec![">= 1.5 10^9/L"]),
            ("Platelets ≥ 100 x 10^9/L", vec![">= 100 10^9/L"]),
            (
                "FEV1 of 60% or more of the predicted value",
                vec![">= 60 %"],
            ),
            ("QTcF > 470 ms", vec!["> 470 ms"]),
            ("surgery within 28 days before", vec!["<= 28 days"]),
            ("stroke within the last 6 months", vec!["<= 6 months"]),
            ("Score ≥ 3", vec![">= 3"]),
            ("Body weight below 20 kg", vec!["< 20 kg"]),
            ("Temperature 36,5 or more", vec![]),
            ("at least one prior therapy", vec![]),
            ("Type 2 diabetes", vec![]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }
}
