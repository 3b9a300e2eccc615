//! Marks that start an item of a list: bullets, numbers, letters, Roman numerals, in the usual punctuation.

/// The punctuation of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Punctuation {
    /// `1.`
    Dot,
    /// `1)`
    Paren,
    /// `(1)`
    Parens,
    /// `[1]`
    Brackets,
    /// `1:`
    Colon,
    /// `1`
    Bare,
}

/// A numbering style.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Style {
    /// The same sign for all items.
    Bullet(char),
    /// 1, 2, 3, optionally with a prefix: `I1`, `IC-2`.
    Number(String, Punctuation),
    /// a, b, c.
    Lower(Punctuation),
    /// A, B, C.
    Upper(Punctuation),
    /// i, ii, iii.
    Roman(Punctuation),
    /// 4.1.1, 4.1.2: a number nested in another.
    Path(String),
}

/// One reading of a mark; `(i)` has two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// The numbering style.
    pub style: Style,
    /// Its ordinal number; 0 for bullets.
    pub value: u32,
}

/// A mark at the start of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark<'a> {
    /// Its label without punctuation; empty for bullets.
    pub label: String,
    /// Its possible readings, likelier first.
    pub meanings: Vec<Meaning>,
    /// The rest of the line.
    pub rest: &'a str,
}

const BULLETS: &str = "•◦▪■□▫●○‣⁃∙·–—−-*§►➢➤✓✔\u{F0B7}\u{F0A7}\u{F0D8}\u{F02D}\u{2610}";

/// Reads the mark at the start of a line, if there is one.
#[must_use]
pub fn read(line: &str) -> Option<Mark<'_>> {
    bullet(line)
        .or_else(|| path(line))
        .or_else(|| punctuated(line))
}

fn bullet(line: &str) -> Option<Mark<'_>> {
    let first = line.chars().next()?;
    let rest = &line[first.len_utf8()..];
    // A circle bullet of a word processor often becomes the letter o.
    let circle = first == 'o' && (rest.starts_with("  ") || next_is_upper(rest));
    if !BULLETS.contains(first) && !circle {
        return None;
    }
    // A dash may be a minus sign, so it needs a space; an unambiguous bullet does not.
    let touching = !rest.starts_with(' ');
    if touching && matches!(first, '-' | '–' | '—' | '−' | '*' | 'o' | '§' | '·') {
        return None;
    }
    let rest = rest.trim_start();
    let style = Style::Bullet(first);
    (!rest.is_empty()).then(|| mark(String::new(), vec![Meaning { style, value: 0 }], rest))
}

fn next_is_upper(rest: &str) -> bool {
    rest.strip_prefix(' ')
        .and_then(|rest| rest.chars().next())
        .is_some_and(char::is_uppercase)
}

/// `4.1.2 Text`, `1.1. Text`: at least two numbers, then a word.
fn path(line: &str) -> Option<Mark<'_>> {
    let end = line.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, rest) = line.split_at(end);
    let label = number.trim_end_matches('.');
    let (parent, last) = label.rsplit_once('.')?;
    let tidy = label.split('.').all(|part| (1..=2).contains(&part.len()));
    let rest = rest.strip_prefix(')').unwrap_or(rest);
    // "1.5 x ULN" is a measurement: an item starts with a capital letter.
    if !tidy || !rest.starts_with(' ') || !starts_item(rest.trim_start()) {
        return None;
    }
    let style = Style::Path(parent.to_owned());
    let value = last.parse().ok()?;
    Some(mark(
        label.to_owned(),
        vec![Meaning { style, value }],
        rest.trim_start(),
    ))
}

fn starts_item(rest: &str) -> bool {
    let first = rest.chars().next();
    first.is_some_and(|c| c.is_uppercase() || matches!(c, '≥' | '≤' | '>' | '<' | '"' | '“'))
}

/// Reads a number, letter or Roman numeral with punctuation.
fn punctuated(line: &str) -> Option<Mark<'_>> {
    let (opened, inner) = match line.chars().next()? {
        '(' => (Some(')'), &line[1..]),
        '[' => (Some(']'), &line[1..]),
        _ => (None, line.strip_prefix('#').unwrap_or(line)),
    };
    let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '-')?;
    let (label, after) = inner.split_at(end);
    if label.is_empty() || label.len() > 6 {
        return None;
    }
    let closing = after.chars().next()?;
    let punctuation = match (opened, closing) {
        (Some(')'), ')') => Punctuation::Parens,
        (Some(']'), ']') => Punctuation::Brackets,
        (None, '.') => Punctuation::Dot,
        (None, ')') => Punctuation::Paren,
        (None, ':') => Punctuation::Colon,
        (None, ' ') => Punctuation::Bare,
        _ => return None,
    };
    let rest = match punctuation {
        Punctuation::Bare => after,
        _ => {
            let rest = &after[1..];
            // "1.)" and "(1)." occur, too.
            rest.strip_prefix(['.', ')']).unwrap_or(rest)
        }
    };
    let words = rest.trim_start();
    let spaced = rest.starts_with(' ');
    if words.is_empty() || (!spaced && !starts_item(words)) {
        return None;
    }
    let gap = rest.len() - words.len();
    let meanings = meanings(label, punctuation, gap, words)?;
    Some(mark(label.to_owned(), meanings, words))
}

fn meanings(
    label: &str,
    punctuation: Punctuation,
    gap: usize,
    words: &str,
) -> Option<Vec<Meaning>> {
    let digits = label.trim_start_matches(|c: char| !c.is_ascii_digit());
    let word = &label[..label.len() - digits.len()];
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        let value: u32 = digits.parse().ok()?;
        // "12 weeks" is not an item, "12  Weeks" is.
        let bare = punctuation == Punctuation::Bare && word.is_empty();
        let plausible = (1..=199).contains(&value)
            && (!bare || (gap >= 2 && starts_item(words)))
            && (punctuation != Punctuation::Bare || starts_item(words))
            && (word.is_empty() || is_code(word));
        let style = Style::Number(word.to_owned(), punctuation);
        return plausible.then(|| vec![Meaning { style, value }]);
    }
    if !digits.is_empty()
        || matches!(punctuation, Punctuation::Bare | Punctuation::Colon)
        || label.contains('-')
    {
        return None;
    }
    let mut found = Vec::new();
    let lower = label.bytes().all(|b| b.is_ascii_lowercase());
    if let (true, Some(value)) = (lower, roman(label)) {
        found.push(Meaning {
            style: Style::Roman(punctuation),
            value,
        });
    }
    if let [letter] = label.as_bytes() {
        let (style, base) = if letter.is_ascii_lowercase() {
            (Style::Lower(punctuation), b'a')
        } else {
            (Style::Upper(punctuation), b'A')
        };
        let value = u32::from(letter - base) + 1;
        // "E. coli" is not an item: capital letters count from A.
        found.push(Meaning { style, value });
    }
    // i, v and x are rarely letters; c, d, l and m are rarely Roman numerals.
    if found.len() == 2 && !matches!(label, "i" | "v" | "x") {
        found.swap(0, 1);
    }
    (!found.is_empty()).then_some(found)
}

/// `I1`, `IC-2`, `EX3`, `Inc1`: a short prefix of the number.
fn is_code(word: &str) -> bool {
    let letters = word.trim_end_matches('-');
    (1..=4).contains(&letters.len())
        && letters.bytes().all(|b| b.is_ascii_alphabetic())
        && letters.as_bytes()[0].is_ascii_uppercase()
        && matches!(letters.as_bytes()[0], b'I' | b'E' | b'C' | b'N')
}

/// Parses lower-case Roman numerals up to 39.
fn roman(text: &str) -> Option<u32> {
    let tens = text.bytes().take_while(|b| *b == b'x').count();
    let ones = match &text[tens..] {
        "" => 0,
        "i" => 1,
        "ii" => 2,
        "iii" => 3,
        "iv" => 4,
        "v" => 5,
        "vi" => 6,
        "vii" => 7,
        "viii" => 8,
        "ix" => 9,
        _ => return None,
    };
    let value = u32::try_from(tens).ok()? * 10 + ones;
    (1..40).contains(&value).then_some(value)
}

fn mark(label: String, meanings: Vec<Meaning>, rest: &str) -> Mark<'_> {
    Mark {
        label,
        meanings,
        rest,
    }
}

#[cfg(test)]
mod tests {
    use super::{Punctuation, Style, read};

    fn label(line: &str) -> Option<String> {
        read(line).map(|mark| mark.label)
    }

    #[test]
    fn items_are_distinguished_from_prose() {
        for (line, expected) in [
            ("1. Adults", "1"),
            ("12) Adults", "12"),
            ("(3) adults", "3"),
            ("[4] Adults", "4"),
            ("1.) Adults", "1"),
            ("1.Adults", "1"),
            ("7  Adults", "7"),
            ("a. adults", "a"),
            ("(iv) adults", "iv"),
            ("4.1.2 Adults", "4.1.2"),
            ("I1. Adults", "I1"),
            ("IC-2: Adults", "IC-2"),
            ("E3 Adults", "E3"),
            ("• adults", ""),
            ("•adults", ""),
            ("- adults", ""),
            ("o Adults", ""),
            ("\u{F0B7} adults", ""),
        ] {
            assert_eq!(label(line).as_deref(), Some(expected), "{line}");
        }
        for line in [
            "12 weeks before the first dose",
            "1.5 x ULN",
            "0.5 mg daily",
            "1500 mg/day, or the maximum",
            "-5 degrees",
            "of adults",
            "e.g. adults",
            "HbA1c between 7 and 10",
            "2024. The study",
            "(ALT) above normal",
            "",
        ] {
            assert_eq!(label(line), None, "{line}");
        }
    }

    #[test]
    fn letter_that_is_a_roman_numeral_has_both_meanings() {
        let mark = read("(i) first").unwrap();
        let styles: Vec<&Style> = mark.meanings.iter().map(|m| &m.style).collect();
        assert_eq!(
            styles,
            [
                &Style::Roman(Punctuation::Parens),
                &Style::Lower(Punctuation::Parens)
            ]
        );
    }
}
