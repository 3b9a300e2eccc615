//! The age range that a criterion requires.

use super::numbers::{Piece, Token, tokens};
use crate::model::{Age, AgeUnit};

/// The age range, if the text is about age.
#[must_use]
pub fn age(text: &str) -> Option<Age> {
    let tokens = tokens(text);
    (0..tokens.len()).find_map(|at| range(&tokens, at))
}

/// A range whose first number is at this token.
fn range(tokens: &[Token<'_>], at: usize) -> Option<Age> {
    let first = tokens[at].number()?;
    let first_unit = tokens.get(at + 1).and_then(unit);
    let mut next = at + 1 + usize::from(first_unit.is_some());
    let (opening, before) = comparison(&tokens[..at]);
    // "18 to 75", "18-75", "between 18 and 75", "from 6 to less than 12"
    let joined = tokens.get(next).is_some_and(|token| {
        token.is_word("to")
            || token.is_word("through")
            || ['-', '–', '—'].iter().any(|dash| token.is_sign(*dash))
            || (token.is_word("and") && before > 0 && tokens[before - 1].is_word("between"))
            || (token.is_word("and") && before > 0 && opening.is_some())
    });
    let mut second = None;
    if joined {
        let (from, below) = bound(tokens, next + 1);
        if let Some(max) = tokens.get(from).and_then(Token::number) {
            let max_unit = tokens.get(from + 1).and_then(unit);
            next = from + 1 + usize::from(max_unit.is_some());
            second = Some((max, max_unit, below));
        }
    }
    let unit_after = second.and_then(|(_, unit, _)| unit).or(first_unit);
    if !is_about_age(tokens, before, next, unit_after.is_some()) {
        return None;
    }
    if let Some((max, max_unit, below_max)) = second {
        let max_unit = max_unit.or(first_unit).unwrap_or_default();
        let min_unit = first_unit.unwrap_or(max_unit);
        let (min, max, unit) = same_unit((first, min_unit), (max, max_unit));
        return (min <= max).then_some(Age {
            min: Some(min),
            max: Some(max),
            above_min: opening == Some(Bound::Above),
            below_max,
            unit,
        });
    }
    let unit = first_unit.unwrap_or_default();
    let bound = opening.or_else(|| closing(tokens, next))?;
    let limit = |min: bool, open: bool| Age {
        min: min.then_some(first),
        max: (!min).then_some(first),
        above_min: min && open,
        below_max: !min && open,
        unit,
    };
    Some(match bound {
        Bound::AtLeast => limit(true, false),
        Bound::Above => limit(true, true),
        Bound::AtMost => limit(false, false),
        Bound::Below => limit(false, true),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    AtLeast,
    Above,
    AtMost,
    Below,
}

/// The comparison before a number, and its start.
fn comparison(before: &[Token<'_>]) -> (Option<Bound>, usize) {
    const FRONT: &[(&[&str], Bound)] = &[
        (&["at", "least"], Bound::AtLeast),
        (&["minimum", "of"], Bound::AtLeast),
        (&["minimum", "age", "of"], Bound::AtLeast),
        (&["not", "younger", "than"], Bound::AtLeast),
        (&["not", "less", "than"], Bound::AtLeast),
        (&["no", "younger", "than"], Bound::AtLeast),
        (&["not", "older", "than"], Bound::AtMost),
        (&["no", "older", "than"], Bound::AtMost),
        (&["not", "more", "than"], Bound::AtMost),
        (&["no", "more", "than"], Bound::AtMost),
        (&["at", "most"], Bound::AtMost),
        (&["up", "to"], Bound::AtMost),
        (&["maximum", "age", "of"], Bound::AtMost),
        (&["older", "than"], Bound::Above),
        (&["greater", "than"], Bound::Above),
        (&["more", "than"], Bound::Above),
        (&["over"], Bound::Above),
        (&["above"], Bound::Above),
        (&["younger", "than"], Bound::Below),
        (&["less", "than"], Bound::Below),
        (&["under"], Bound::Below),
        (&["below"], Bound::Below),
    ];
    let end = before.len();
    let sign = |back: usize| match before.get(end.checked_sub(back)?)?.piece {
        Piece::Sign(sign) => Some(sign),
        _ => None,
    };
    match (sign(2), sign(1)) {
        (Some('>'), Some('=')) => return (Some(Bound::AtLeast), end - 2),
        (Some('<'), Some('=')) => return (Some(Bound::AtMost), end - 2),
        (_, Some('≥')) => return (Some(Bound::AtLeast), end - 1),
        (_, Some('≤')) => return (Some(Bound::AtMost), end - 1),
        (_, Some('>')) => return (Some(Bound::Above), end - 1),
        (_, Some('<')) => return (Some(Bound::Below), end - 1),
        _ => {}
    }
    for (words, bound) in FRONT {
        if let Some(start) = end.checked_sub(words.len())
            && before[start..]
                .iter()
                .zip(*words)
                .all(|(token, word)| token.is_word(word))
        {
            return (Some(*bound), start);
        }
    }
    (None, end)
}

/// After "to": "less than 12", "below 12", "under 12", "< 12". Returns the position of the number, and whether it is excluded.
fn bound(tokens: &[Token<'_>], at: usize) -> (usize, bool) {
    let word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(word));
    if (word(at, "less") || word(at, "younger")) && word(at + 1, "than") {
        (at + 2, true)
    } else if word(at, "below")
        || word(at, "under")
        || tokens.get(at).is_some_and(|t| t.is_sign('<'))
    {
        (at + 1, true)
    } else if tokens.get(at).is_some_and(|token| token.is_sign('≤')) {
        (at + 1, false)
    } else {
        (at, false)
    }
}

/// "18 years or older", "18 years and above", "65 years or younger".
fn closing(tokens: &[Token<'_>], mut at: usize) -> Option<Bound> {
    let word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(word));
    // "18 years of age or older", "18 years old and above"
    if word(at, "of") && word(at + 1, "age") {
        at += 2;
    } else if word(at, "old") {
        at += 1;
    }
    if tokens.get(at).is_some_and(|token| token.is_sign(',')) {
        at += 1;
    }
    if !word(at, "or") && !word(at, "and") {
        return None;
    }
    if ["older", "above", "over", "more", "greater", "up", "upwards"]
        .iter()
        .any(|w| word(at + 1, w))
    {
        Some(Bound::AtLeast)
    } else if ["younger", "below", "under", "less"]
        .iter()
        .any(|w| word(at + 1, w))
    {
        Some(Bound::AtMost)
    } else {
        None
    }
}

fn unit(token: &Token<'_>) -> Option<AgeUnit> {
    let Piece::Word(word) = token.piece else {
        return None;
    };
    Some(match word.to_ascii_lowercase().as_str() {
        "year" | "years" | "yr" | "yrs" | "y" => AgeUnit::Years,
        "month" | "months" | "mo" | "mos" => AgeUnit::Months,
        "week" | "weeks" | "wk" | "wks" => AgeUnit::Weeks,
        "day" | "days" => AgeUnit::Days,
        _ => return None,
    })
}

/// A number of years is an age only if the words around it say so.
fn is_about_age(tokens: &[Token<'_>], before: usize, after: usize, has_unit: bool) -> bool {
    let near = &tokens[before.saturating_sub(4)..before];
    let word = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is_word(word));
    let named = near
        .iter()
        .rev()
        .take_while(|token| !token.is_sign(';'))
        .any(|token| {
            ["age", "aged", "ages"]
                .iter()
                .any(|name| token.is_word(name))
        });
    // "age at diagnosis" and the like are ages as well; "aged" may also stand behind.
    let of_age = (word(after, "of") && word(after + 1, "age"))
        || word(after, "old")
        || word(after, "older")
        || (word(after, "or") || word(after, "and"))
            && ["older", "younger"]
                .iter()
                .any(|name| word(after + 1, name));
    let compared = tokens[before..]
        .first()
        .is_some_and(|token| token.is_word("older") || token.is_word("younger"));
    named || (has_unit && (of_age || compared))
}

/// Both in the smaller of two units.
fn same_unit(min: (f64, AgeUnit), max: (f64, AgeUnit)) -> (f64, f64, AgeUnit) {
    if min.1 == max.1 {
        return (min.0, max.0, min.1);
    }
    let days = |unit: AgeUnit| match unit {
        AgeUnit::Years => 365.25,
        AgeUnit::Months => 365.25 / 12.0,
        AgeUnit::Weeks => 7.0,
        AgeUnit::Days => 1.0,
    };
    let unit = if days(min.1) < days(max.1) {
        min.1
    } else {
        max.1
    };
    let convert = |(value, from): (f64, AgeUnit)| {
        let value = value * days(from) / days(unit);
        (value * 100.0).round() / 100.0
    };
    (convert(min), convert(max), unit)
}

#[cfg(test)]
mod tests {
    use super::age;

    fn found(text: &str) -> Option<String> {
        age(text).map(|age| {
            let bound = |value: Option<f64>, open: bool| {
                value.map_or("-".to_owned(), |v| {
                    format!("{}{v}", if open { "!" } else { "" })
                })
            };
            format!(
                "{}..{} {:?}",
                bound(age.min, age.above_min),
                bound(age.max, age.below_max),
                age.unit
            )
        })
    }

    #[test]
    fn ages_are_read_in_many_spellings() {
        for (text, expected) in [
            (
                "Male or female, aged 18 to 75 years (both inclusive)",
                "18..75 Years",
            ),
            ("Age ≥ 18 years", "18..- Years"),
            ("Age >= 18", "18..- Years"),
            ("≥18 years of age", "18..- Years"),
            ("At least 18 years old at screening", "18..- Years"),
            ("18 years or older", "18..- Years"),
            ("Adults 18 years of age and older", "18..- Years"),
            ("Aged between 18 and 65 years", "18..65 Years"),
            ("Ages 18-65", "18..65 Years"),
            ("Children aged from 6 to less than 12 years", "6..!12 Years"),
            ("Younger than 18 years", "-..!18 Years"),
            ("Patients under 18 years of age", "-..!18 Years"),
            ("Older than 65 years", "!65..- Years"),
            ("Infants aged 6 months to 5 years", "6..60 Months"),
            ("Age > 18 and < 70 years", "!18..!70 Years"),
            ("Women aged eighteen years or older", "18..- Years"),
        ] {
            assert_eq!(found(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_times_are_no_ages() {
        for text in [
            "Diagnosed at least 180 days before screening",
            "Other malignancy within the last 3 years",
            "Stable dose for 90 days or more",
            "Average of 3 readings",
            "Stage 2 to 4 disease",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
