//! Finds the sections with inclusion and exclusion criteria.

mod words;

use self::words::{
    CONTINUATIONS, EXCLUSION_PHRASES, FOLLOWING_TITLES, INCLUSION_PHRASES, PEOPLE, QUALIFIERS,
    contains_any, is_listed, starts_with_any,
};
use super::{lines::Line, marker};
use crate::model::Kind;

/// The lines under a heading about inclusion or exclusion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Inclusion or exclusion.
    pub kind: Kind,
    /// Its lines, without the heading.
    pub lines: Vec<Line>,
}

/// What a line announces.
#[derive(Debug, PartialEq, Eq)]
enum Heading<'a> {
    /// Criteria of this kind; the rest of the line belongs to them.
    Of(Kind, &'a str),
    /// Criteria of a kind that the next heading names. Without one, a list here is inclusion.
    Either,
}

struct Open {
    section: Section,
    /// The heading's own number: `4.1`.
    number: String,
    /// The kind is assumed: no heading names it.
    assumed: bool,
    /// The last number in the outermost list.
    last: u32,
}

/// Finds every section with criteria.
#[must_use]
pub fn find(lines: &[Line]) -> Vec<Section> {
    let lines = split_headings(lines);
    let mut done: Vec<Open> = Vec::new();
    let mut open: Option<Open> = None;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        let (number, title) = without_number(&line.text);
        if let Some(heading) = heading(title, line) {
            done.extend(open.take());
            let (kind, rest, assumed) = match heading {
                Heading::Of(kind, rest) => (kind, rest, false),
                Heading::Either => (Kind::Inclusion, "", true),
            };
            open = Some(begin(kind, number, assumed));
            if let (Some(open), false) = (&mut open, rest.is_empty()) {
                open.section.lines.push(Line {
                    text: rest.to_owned(),
                    indent: line.indent,
                    after_gap: true,
                });
            }
            continue;
        }
        if let Some((kind, taken)) = announcement(&lines[at - 1..], number, open.as_ref()) {
            at += taken - 1;
            if open
                .as_ref()
                .is_none_or(|open| open.section.kind != kind || open.assumed)
            {
                done.extend(open.take().filter(|open| !open.assumed));
                open = Some(begin(kind, number, false));
            }
            continue;
        }
        let Some(current) = &mut open else {
            continue;
        };
        if ends(current, line, number, title) {
            done.extend(open.take());
            continue;
        }
        if let Some(marker::Style::Number(..)) = style_of(&line.text)
            && let Some(value) = value_of(&line.text)
        {
            current.last = value;
        }
        current.section.lines.push(line.clone());
    }
    done.extend(open);
    let is_known = done.iter().any(|open| !open.assumed);
    done.into_iter()
        .filter(|open| !open.assumed || (!is_known && is_list(&open.section.lines)))
        .map(|open| open.section)
        .filter(|section| !section.lines.is_empty())
        .collect()
}

fn begin(kind: Kind, number: &str, assumed: bool) -> Open {
    Open {
        section: Section {
            kind,
            lines: Vec::new(),
        },
        number: number.to_owned(),
        assumed,
        last: 0,
    }
}

fn is_list(lines: &[Line]) -> bool {
    lines.iter().any(|line| marker::read(&line.text).is_some())
}

fn style_of(line: &str) -> Option<marker::Style> {
    Some(marker::read(line)?.meanings.first()?.style.clone())
}

fn value_of(line: &str) -> Option<u32> {
    Some(marker::read(line)?.meanings.first()?.value)
}

/// Moves headings inside a line to their own line: "… Exclusion criteria: …".
fn split_headings(lines: &[Line]) -> Vec<Line> {
    let mut split = Vec::with_capacity(lines.len());
    for line in lines {
        let mut rest = line.text.as_str();
        while let Some(at) = heading_inside(rest) {
            split.push(Line {
                text: rest[..at].trim_end().to_owned(),
                ..line.clone()
            });
            rest = &rest[at..];
        }
        split.push(Line {
            text: rest.to_owned(),
            ..line.clone()
        });
    }
    split
}

fn heading_inside(text: &str) -> Option<usize> {
    const HEADINGS: [&str; 4] = [
        "Exclusion criteria:",
        "Exclusion Criteria:",
        "EXCLUSION CRITERIA:",
        "Inclusion criteria:",
    ];
    let found = HEADINGS.iter().filter_map(|heading| text.find(heading));
    found
        .filter(|at| {
            *at > 0 && text[..*at].ends_with(['.', ' ', ';']) && has_sentence(&text[..*at])
        })
        .min()
}

/// Is there more than a number or an adjective?
fn has_sentence(text: &str) -> bool {
    text.split_whitespace().count() > 3
}

/// Splits the section number from a title, if there is one.
fn without_number(line: &str) -> (&str, &str) {
    let line = line.trim_start_matches(['#', ' ']);
    let end = line
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(line.len());
    let (number, rest) = line.split_at(end);
    let rest = rest.strip_prefix([')', ':']).unwrap_or(rest);
    if !number.is_empty()
        && number.as_bytes()[0].is_ascii_digit()
        && (rest.starts_with(' ') || number.ends_with('.'))
    {
        return (number.trim_end_matches('.'), rest.trim_start());
    }
    // "A. Inclusion criteria", "IV. Eligibility"
    if let Some((letters, rest)) = line.split_once(". ")
        && letters.len() <= 4
        && letters.bytes().all(|b| b"ABCDEFGHIVX".contains(&b))
    {
        return ("", rest.trim_start());
    }
    ("", line)
}

const PHRASES: &[(&[&str], Option<Kind>)] = &[
    (&["non", "inclusion", "criteria"], Some(Kind::Exclusion)),
    (&["noninclusion", "criteria"], Some(Kind::Exclusion)),
    (&["exclusion", "criteria"], Some(Kind::Exclusion)),
    (&["exclusion", "criterion"], Some(Kind::Exclusion)),
    (&["exclusionary", "criteria"], Some(Kind::Exclusion)),
    (&["criteria", "for", "exclusion"], Some(Kind::Exclusion)),
    (&["reasons", "for", "exclusion"], Some(Kind::Exclusion)),
    (&["ineligibility", "criteria"], Some(Kind::Exclusion)),
    (&["exclusions"], Some(Kind::Exclusion)),
    (&["inclusion", "criteria"], Some(Kind::Inclusion)),
    (&["inclusion", "criterion"], Some(Kind::Inclusion)),
    (&["criteria", "for", "inclusion"], Some(Kind::Inclusion)),
    (&["inclusions"], Some(Kind::Inclusion)),
    (&["eligibility", "criteria"], None),
    (&["selection", "criteria"], None),
    (&["entry", "criteria"], None),
    (&["criteria", "for", "eligibility"], None),
];

/// Reads a title about criteria.
fn heading<'a>(title: &'a str, line: &Line) -> Option<Heading<'a>> {
    let words = words_of(title);
    if words.is_empty() || words.len() > 200 {
        return None;
    }
    let both = |kind: &str| words.iter().take(6).any(|word| word.1.starts_with(kind));
    let alone: Vec<&str> = words.iter().map(|word| word.1.as_str()).collect();
    match alone.as_slice() {
        ["inclusion"] => return Some(Heading::Of(Kind::Inclusion, "")),
        ["exclusion"] => return Some(Heading::Of(Kind::Exclusion, "")),
        ["eligibility"] => return Some(Heading::Either),
        _ => {}
    }
    if both("inclusion") && both("exclusion") && words.len() <= 8 && !title.ends_with('.') {
        return Some(Heading::Either);
    }
    for (phrase, kind) in PHRASES {
        let Some(at) = position(&words, phrase).filter(|at| *at <= 5) else {
            continue;
        };
        if !words[..at]
            .iter()
            .all(|word| is_listed(QUALIFIERS, &word.1))
        {
            continue;
        }
        let end = words[at + phrase.len() - 1].0;
        let tail = title[end..].trim_start();
        let tail_words = words.len() - at - phrase.len();
        let follows = tail.strip_prefix([':', '–', '—']).map(str::trim_start);
        let fits = match (follows, tail_words) {
            (Some(_), _) | (None, 0) => true,
            // "Inclusion criteria for part A", but not the middle of a sentence.
            (None, tail_words) => {
                let next = &words[at + phrase.len()].1;
                tail_words <= 8
                    && (tail.starts_with('(') || is_listed(CONTINUATIONS, next))
                    && !tail.ends_with(['.', ','])
                    && (line.after_gap || tail.ends_with(':'))
            }
        };
        // "and exclusion criteria were" at the beginning of a wrapped line.
        if !fits || (!line.after_gap && title.starts_with(char::is_lowercase)) {
            continue;
        }
        let rest = follows
            .unwrap_or_default()
            .trim_start_matches('*')
            .trim_start();
        return Some(match kind {
            Some(kind) if introduces(rest) => Heading::Of(*kind, ""),
            Some(kind) => Heading::Of(*kind, rest),
            None => Heading::Either,
        });
    }
    None
}

/// Words, each with its end.
fn words_of(text: &str) -> Vec<(usize, String)> {
    let mut words: Vec<(usize, String)> = Vec::new();
    let mut word = String::new();
    for (at, c) in text.char_indices().take(2_000) {
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        } else if !word.is_empty() {
            words.push((at, std::mem::take(&mut word)));
        }
    }
    if !word.is_empty() {
        words.push((text.len(), word));
    }
    words
}

fn position(words: &[(usize, String)], phrase: &[&str]) -> Option<usize> {
    words.windows(phrase.len()).position(|window| {
        window
            .iter()
            .map(|word| word.1.as_str())
            .eq(phrase.iter().copied())
    })
}

/// Reads a sentence, on up to three lines, that states who may or may not take part and ends with a colon. Returns the
/// kind and the number of lines.
fn announcement(lines: &[Line], number: &str, open: Option<&Open>) -> Option<(Kind, usize)> {
    let first = lines.first()?;
    // An item of a list may contain such a sentence, unless its number is that of a section.
    let is_item = marker::read(&first.text).is_some_and(|_| !number.contains('.'));
    if is_item
        || !first
            .text
            .starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit())
    {
        return None;
    }
    let mut sentence = String::new();
    for (index, line) in lines.iter().take(3).enumerate() {
        if index > 0 && (line.after_gap || marker::read(&line.text).is_some()) {
            return None;
        }
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(&line.text);
        if line.text.ends_with(':') {
            let kind = announced(&sentence.to_lowercase(), open.map(|open| open.section.kind))?;
            return Some((kind, index + 1));
        }
        if line.text.ends_with(['.', ';']) {
            return None;
        }
    }
    None
}

fn announced(sentence: &str, now: Option<Kind>) -> Option<Kind> {
    if sentence.split_whitespace().count() > 45 || !contains_any(sentence, PEOPLE) {
        return None;
    }
    if contains_any(sentence, EXCLUSION_PHRASES) {
        return Some(Kind::Exclusion);
    }
    if contains_any(sentence, INCLUSION_PHRASES) {
        // Inside a list of exclusions only an unambiguous phrase starts a new section.
        let clear = contains_any(
            sentence,
            "eligible|be included|inclusion criteria|must meet all",
        );
        return (now != Some(Kind::Exclusion) || clear).then_some(Kind::Inclusion);
    }
    None
}

/// Does this text only introduce a list?
#[must_use]
pub fn introduces(text: &str) -> bool {
    let lower = text.to_lowercase();
    let short = text.split_whitespace().count() <= 40;
    let points = ["following", "criteria", "below", "conditions"];
    let introduces = points.iter().any(|word| lower.contains(word));
    short && introduces && (text.ends_with(':') || lower.contains("the following"))
}

/// Does a line end the section, because it is the title of something else?
fn ends(open: &Open, line: &Line, number: &str, title: &str) -> bool {
    if line.text.starts_with('#') {
        return true;
    }
    let words = title.split_whitespace().count();
    let title_like = words <= 9
        && !title.ends_with(['.', ';', ',', ':'])
        && title.starts_with(|c: char| c.is_uppercase());
    if !number.is_empty() && title_like {
        if number.contains('.') {
            // 4.1.2 in section 4.1 is an item, 4.2 is the next section.
            let inside = format!("{}.", open.number);
            return !open.number.is_empty()
                && !number.starts_with(&inside)
                && !inside_list(open, number);
        }
        let value: u32 = number.parse().unwrap_or(0);
        let expected = value == open.last + 1;
        let chapter: Option<u32> = open.number.split('.').next().and_then(|n| n.parse().ok());
        if !expected && (is_upper_case(title) || chapter == value.checked_sub(1)) {
            return true;
        }
        return is_upper_case(title) && (open.last == 0 || !expected)
            || (!expected && follows(title));
    }
    if marker::read(&line.text).is_some() {
        return false;
    }
    title_like && (is_upper_case(title) && words <= 8 || (line.after_gap && follows(title)))
}

/// 3.1 after item 3 is nested in it.
fn inside_list(open: &Open, number: &str) -> bool {
    let parent = number.split('.').next().and_then(|n| n.parse().ok());
    open.last > 0 && parent == Some(open.last)
}

fn follows(title: &str) -> bool {
    starts_with_any(&title.to_lowercase(), FOLLOWING_TITLES)
}

fn is_upper_case(title: &str) -> bool {
    let letters = title.chars().filter(|c| c.is_alphabetic()).count();
    letters >= 5 && !title.chars().any(char::is_lowercase)
}
