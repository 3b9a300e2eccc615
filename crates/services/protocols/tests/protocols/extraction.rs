//! What the built-in stages find in realistic protocols.

use postrider_protocols::{
    model::{Criterion, Kind},
    stage::{extraction::criteria, grounding, vocabulary::Vocabulary},
};
use proptest::prelude::*;

/// `+`/`-`, the number, `!` if negated, the text.
fn found(text: &str) -> Vec<String> {
    criteria(text).iter().map(line).collect()
}

fn line(criterion: &Criterion) -> String {
    let kind = if criterion.kind == Kind::Inclusion {
        '+'
    } else {
        '-'
    };
    let number = criterion.number.as_deref().unwrap_or("*");
    let indent = " ".repeat(usize::from(criterion.level));
    let negated = if criterion.negated { "!" } else { "" };
    format!("{indent}{kind}{number}{negated} {}", criterion.text)
}

fn golden(name: &str, text: &str, expected: &str) {
    let actual = found(text).join("\n");
    assert_eq!(actual.trim(), expected.trim(), "{name}");
}

#[test]
fn diabetes_protocol_with_contents_and_numbered_lists() {
    golden(
        "glucose",
        include_str!("samples/glucose.txt"),
        include_str!("samples/glucose.expected"),
    );
}

#[test]
fn cancer_protocol_with_nested_bullets() {
    golden(
        "lung",
        include_str!("samples/lung.txt"),
        include_str!("samples/lung.expected"),
    );
}

#[test]
fn paediatric_protocol_with_sentences_as_headings_and_page_breaks() {
    golden(
        "asthma",
        include_str!("samples/asthma.txt"),
        include_str!("samples/asthma.expected"),
    );
}

#[test]
fn headings_are_recognized_in_many_spellings() {
    for (inclusion, exclusion) in [
        ("Inclusion Criteria", "Exclusion Criteria"),
        ("INCLUSION CRITERIA:", "EXCLUSION CRITERIA:"),
        ("4.1. Inclusion criteria", "4.2. Exclusion criteria"),
        ("## Inclusion criteria", "## Exclusion criteria"),
        ("**Inclusion criteria**", "**Exclusion criteria**"),
        ("Key inclusion criteria are:", "Key exclusion criteria are:"),
        ("Criteria for inclusion", "Criteria for exclusion"),
        ("Main Inclusion Criteria", "Non-inclusion Criteria"),
        ("Inclusion", "Exclusion"),
        ("A. Inclusion Criteria", "B. Exclusion Criteria"),
        (
            "Inclusion criteria for part A",
            "Exclusion criteria (all parts)",
        ),
        (
            "Patients must meet all of the following criteria:",
            "Patients will be excluded if any of the following apply:",
        ),
        (
            "To be eligible, subjects must fulfil all of these:",
            "Subjects are not eligible if they have:",
        ),
        (
            "Participants are eligible to be included in the study only if\nall of the following criteria apply:",
            "Participants are excluded from the study if any of the\nfollowing criteria apply:",
        ),
    ] {
        let text = format!(
            "Preamble about the trial.\n\n{inclusion}\n\n1. Adults\n2. Consent\n\n{exclusion}\n\n1. Pregnancy\n"
        );
        assert_eq!(
            found(&text),
            ["+1 Adults", "+2 Consent", "-1 Pregnancy"],
            "{inclusion}"
        );
    }
}

#[test]
fn lists_are_recognized_in_many_numbering_styles() {
    for (first, second) in [
        ("1.", "2."),
        ("1)", "2)"),
        ("(1)", "(2)"),
        ("a.", "b."),
        ("(i)", "(ii)"),
        ("A)", "B)"),
        ("•", "•"),
        ("-", "-"),
        ("*", "*"),
        ("o", "o"),
        ("\u{F0B7}", "\u{F0B7}"),
        ("4.1.1", "4.1.2"),
        ("I1.", "I2."),
        ("IC01:", "IC02:"),
    ] {
        let text =
            format!("4.1 Inclusion criteria\n{first} Adults with\n   asthma;\n{second} Consent\n");
        let texts: Vec<String> = criteria(&text).into_iter().map(|c| c.text).collect();
        assert_eq!(texts, ["Adults with asthma", "Consent"], "{first}");
    }
}

#[test]
fn criteria_without_marks_are_separated() {
    let lines = "Inclusion Criteria:\n\nAge 18 years or older\nConfirmed asthma\nWritten informed consent was given\n\nExclusion Criteria:\n\nPregnancy\n";
    assert_eq!(found(lines).len(), 4, "{:?}", found(lines));
    let paragraphs = "Inclusion criteria\n\nAdults with asthma that was diagnosed by a physician at least a year ago and\nwho can use an inhaler.\n\nWritten consent.\n";
    assert_eq!(found(paragraphs).len(), 2, "{:?}", found(paragraphs));
    let inline = "Inclusion criteria: 1) adults; 2) asthma; 3) consent. Exclusion criteria: 1) pregnancy; 2) smoking.";
    assert_eq!(
        found(inline),
        [
            "+1 adults",
            "+2 asthma",
            "+3 consent.",
            "-1 pregnancy",
            "-2 smoking."
        ]
    );
}

#[test]
fn prose_that_mentions_criteria_is_not_a_section() {
    let text = "The inclusion criteria were chosen with care.\n1. This is a list of something else\n2. And so is this\n";
    assert_eq!(found(text), Vec::<String>::new());
}

#[test]
fn criteria_repeated_in_a_synopsis_are_listed_once() {
    let list =
        "Inclusion criteria\n1. Adults with asthma.\n2. Consent\n\nTreatment\n\nSome drug.\n\n";
    let text = format!("{list}BACKGROUND\n\nText.\n\n{list}");
    assert_eq!(found(&text), ["+1 Adults with asthma.", "+2 Consent"]);
}

#[test]
fn built_in_vocabulary_grounds_the_terms_of_the_samples() {
    let vocabulary = Vocabulary::built_in().unwrap();
    assert!(vocabulary.len() >= 300, "{}", vocabulary.len());
    let mut found = criteria(include_str!("samples/glucose.txt"));
    grounding::ground(&vocabulary, &mut found);
    let labels: Vec<&str> = found
        .iter()
        .flat_map(|c| &c.terms)
        .map(|t| t.label.as_str())
        .collect();
    for label in [
        "Informed consent",
        "Type 2 diabetes mellitus",
        "Glycated haemoglobin",
        "Metformin",
        "Body mass index",
        "Diabetic ketoacidosis",
        "Myocardial infarction",
        "Transient ischaemic attack",
        "Heart failure",
        "Estimated glomerular filtration rate",
        "Pancreatitis",
        "Pregnancy",
        "Breast-feeding",
    ] {
        assert!(labels.contains(&label), "{label} is not in {labels:?}");
    }
}

#[test]
fn custom_vocabulary_is_read_and_a_malformed_one_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.csv");
    std::fs::write(
        &path,
        "code,label,synonyms\nX:1,\"Fever, high\",pyrexia|febrile\n",
    )
    .unwrap();
    let vocabulary = Vocabulary::open(&path).unwrap();
    let terms = grounding::terms(&vocabulary, "Febrile patients");
    assert_eq!(
        (terms[0].code.as_str(), terms[0].label.as_str()),
        ("X:1", "Fever, high")
    );
    for (text, expected) in [
        ("label\tcode\n", "no concepts"),
        ("term\tcode\n", "no column \"label\""),
        (
            "code\tlabel\nX\t\n",
            "line 2 of the vocabulary has no label",
        ),
    ] {
        let error = Vocabulary::read(text.as_bytes(), b'\t')
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// No text panics, and every criterion can be stored.
    #[test]
    fn arbitrary_text_yields_storable_criteria(lines in proptest::collection::vec(
        prop_oneof![
            Just("Inclusion criteria".to_owned()), Just("4.2 Exclusion criteria:".to_owned()), Just(String::new()),
            "[ ]{0,6}([0-9]{1,3}|[a-z]{1,3})[.)] .{0,40}", "[•–*-] ?.{0,60}", ".{0,80}", "\\PC{0,40}[≥<>=]{1,2} ?[0-9.,]{0,9} ?(%|mg|×|years)?.{0,9}",
        ], 0..40)) {
        for criterion in criteria(&lines.join("\n")) {
            prop_assert!(!criterion.text.trim().is_empty());
            prop_assert!(!criterion.text.contains('\n'));
        }
    }
}
