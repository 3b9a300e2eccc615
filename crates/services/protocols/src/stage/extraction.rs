//! Built-in extraction: from the text of a protocol to its eligibility criteria.
//!
//! Protocols come from word processors and PDFs and follow conventions, not a format: a heading about inclusion or
//! exclusion, then a list. [`sections`] finds the headings, [`items`] splits a list by its markers, and [`facts`] reads
//! ages, negations and measurements. Time and memory are linear in the text.

pub mod facts;
pub mod items;
pub mod lines;
pub mod marker;
pub mod sections;

use crate::model::Criterion;

/// Maximum length of a criterion, in bytes; the rest is dropped.
const MAX_CRITERION_BYTES: usize = 8_000;

/// Maximum number of criteria; the rest is dropped.
const MAX_CRITERIA: usize = 5_000;

/// The criteria of a protocol, in document order.
#[must_use]
pub fn criteria(text: &str) -> Vec<Criterion> {
    let lines = lines::read(text);
    let mut found = Vec::new();
    for section in sections::find(&lines) {
        for item in items::split(&section.lines) {
            if found.len() == MAX_CRITERIA {
                return found;
            }
            let text = &item.text[..item.text.floor_char_boundary(MAX_CRITERION_BYTES)];
            let mut criterion = Criterion::new(section.kind, text);
            criterion.number = item.number;
            criterion.level = item.level;
            criterion.negated = facts::is_negated(text);
            criterion.age = facts::age(text);
            criterion.measures = facts::measures(text);
            found.push(criterion);
        }
    }
    without_duplicates(found)
}

/// Removes duplicates of the same kind and text: a synopsis often repeats the criteria of the body.
fn without_duplicates(criteria: Vec<Criterion>) -> Vec<Criterion> {
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
