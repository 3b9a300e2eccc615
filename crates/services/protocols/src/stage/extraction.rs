//! Built-in extraction: from the text of a protocol to its eligibility criteria.
//!
//! Protocols are written by people and come out of word processors and PDF, so that nothing is certain but habit: a
//! heading that speaks of inclusion or exclusion, then a list. The rules follow the habits: [`sections`] finds the
//! headings, [`items`] takes a list apart by its markers, and [`facts`] reads ages, negations and measures.
//! Time and memory are linear in the text.

pub mod facts;
pub mod items;
pub mod lines;
pub mod marker;
pub mod sections;

use crate::model::Criterion;

/// No criterion is longer, in bytes; what follows is left out.
const LONGEST: usize = 8_000;

/// No protocol has more; what follows is left out.
const MOST: usize = 5_000;

/// Every criterion of a protocol, in the order of the document. None if it has none.
#[must_use]
pub fn criteria(text: &str) -> Vec<Criterion> {
    let lines = lines::read(text);
    let mut found = Vec::new();
    for section in sections::find(&lines) {
        for item in items::split(&section.lines) {
            if found.len() == MOST {
                return found;
            }
            let text = &item.text[..item.text.floor_char_boundary(LONGEST)];
            let mut criterion = Criterion::new(section.kind, text);
            criterion.number = item.number;
            criterion.level = item.level;
            criterion.negated = facts::is_negated(text);
            criterion.age = facts::age(text);
            criterion.measures = facts::measures(text);
            found.push(criterion);
        }
    }
    without_repetition(found)
}

/// A synopsis at the front often repeats the criteria of the body: the same words of the same kind are one criterion.
fn without_repetition(criteria: Vec<Criterion>) -> Vec<Criterion> {
    let mut seen = std::collections::HashSet::new();
    let essence = |text: &str| {
        let words = text.split(|c: char| !c.is_alphanumeric());
        words
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect::<Vec<_>>()
            .join(" ")
    };
    criteria
        .into_iter()
        .filter(|criterion| {
            criterion.level > 0 || seen.insert((criterion.kind, essence(&criterion.text)))
        })
        .collect()
}
