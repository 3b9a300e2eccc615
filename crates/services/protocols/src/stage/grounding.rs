//! Built-in grounding: finds terms of a criterion that denote concepts of the vocabulary.
//!
//! The longest term that starts at a word wins, and its words are not matched again. Each concept is reported once per
//! criterion.

use super::vocabulary::{Vocabulary, Word, words};
use crate::model::{Criterion, Term};

/// Maximum distance, in words, of a negation before a term.
const NEGATION_DISTANCE: usize = 4;

/// Finds the terms of every criterion.
pub fn ground(vocabulary: &Vocabulary, criteria: &mut [Criterion]) {
    for criterion in criteria {
        criterion.terms = terms(vocabulary, &criterion.text);
    }
}

/// The terms of a text, in order.
#[must_use]
pub fn terms(vocabulary: &Vocabulary, text: &str) -> Vec<Term> {
    let words = words(text);
    let mut found: Vec<Term> = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let Some((concept, length)) = vocabulary.longest(&words[at..]) else {
            at += 1;
            continue;
        };
        let end = words[at + length - 1].end;
        if !found.iter().any(|term| term.code == concept.code) {
            found.push(Term {
                text: text[words[at].start..end].to_owned(),
                code: concept.code.clone(),
                label: concept.label.clone(),
                negated: is_negated(text, &words, at),
            });
        }
        at += length;
    }
    found
}

/// Does a word shortly before the term, in the same clause, negate it?
fn is_negated(text: &str, words: &[Word], at: usize) -> bool {
    let from = at.saturating_sub(NEGATION_DISTANCE);
    let mut end = words[at].start;
    for word in words[from..at].iter().rev() {
        let between = &text[word.end..end];
        if between.contains([',', ';', '.', ':', '(', ')']) {
            return false;
        }
        match word.folded.as_str() {
            "no" | "without" | "not" | "never" | "absence" | "denie" => return true,
            "but" | "except" | "or" | "and" | "than" | "unless" => return false,
            _ => {}
        }
        end = word.start;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::terms;
    use crate::stage::vocabulary::Vocabulary;

    const TSV: &str = "code\tlabel\tsynonyms\n\
        D1\tDiabetes mellitus\tdiabetes\n\
        D2\tType 2 diabetes mellitus\ttype 2 diabetes|T2DM\n\
        D3\tHeart failure\tcardiac failure\n\
        D4\tMultiple sclerosis\tMS\n\
        D5\tIschaemic stroke\t\n\
        D6\tBrain metastases\t\n";

    fn found(text: &str) -> Vec<String> {
        let vocabulary = Vocabulary::read(TSV.as_bytes(), b'\t').unwrap();
        terms(&vocabulary, text)
            .into_iter()
            .map(|t| format!("{}{}={}", if t.negated { "!" } else { "" }, t.text, t.code))
            .collect()
    }

    #[test]
    fn longest_term_wins_in_any_spelling() {
        assert_eq!(
            found("Adults with Type-2 Diabetes Mellitus"),
            ["Type-2 Diabetes Mellitus=D2"]
        );
        assert_eq!(
            found("diabetes or cardiac failures"),
            ["diabetes=D1", "cardiac failures=D3"]
        );
        assert_eq!(found("Ischemic Stroke"), ["Ischemic Stroke=D5"]);
        assert_eq!(found("brain metastasis"), ["brain metastasis=D6"]);
    }

    #[test]
    fn abbreviation_matches_only_in_capitals() {
        assert_eq!(found("QTc > 470 ms"), Vec::<String>::new());
        assert_eq!(found("MS for 2 years"), ["MS=D4"]);
    }

    #[test]
    fn negated_terms_are_marked() {
        assert_eq!(
            found("Patients without brain metastases"),
            ["!brain metastases=D6"]
        );
        assert_eq!(found("No consent, heart failure"), ["heart failure=D3"]);
    }
}
