//! Property tests: the strict checker compared with serde_json.

use postrider_web::json::{JsonError, Limits, check, parse};
use proptest::prelude::*;
use serde_json::Value;

/// Fragments that make valid JSON likely and edge cases frequent.
fn json_like_text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        " ",
        "\n",
        "\"a\"",
        "\"b\"",
        "\"a\":",
        "\"\\u0061\":",
        "\"b\":1",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\ud83d\\ude00\"",
        "\"\\n\"",
        "\\",
        "\\u",
        "0",
        "-0",
        "1",
        "-",
        "12.50",
        "1e5",
        "1E-7",
        "1e400",
        "18446744073709551616",
        "0.1234567890123456789",
        ".",
        "true",
        "false",
        "null",
        "nul",
        "{}",
        "[]",
        "[1]",
        "{\"a\":1}",
        "é",
        "\u{7f}",
        "\t",
    ]);
    prop::collection::vec(pieces, 0..14).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let text = "[^\u{0}]{0,8}";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has only finite numbers", |f| f.is_finite())
            .prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::hash_map(text, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn is_deliberate(error: &JsonError) -> bool {
    match error {
        JsonError::DuplicateKey { .. }
        | JsonError::Nul { .. }
        | JsonError::LoneSurrogate { .. }
        | JsonError::InexactNumber { .. }
        | JsonError::TooDeep { .. }
        | JsonError::TooLarge { .. } => true,
        JsonError::NotUtf8 { .. }
        | JsonError::Syntax { .. }
        | JsonError::UnknownFields { .. }
        | JsonError::Shape { .. } => false,
    }
}

fn agrees(bytes: &[u8]) -> Result<(), TestCaseError> {
    let ours = parse::<Value>(bytes, &Limits::default());
    let theirs = serde_json::from_slice::<Value>(bytes);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
        (Ok(ours), Err(error)) => prop_assert!(false, "accepted {}, serde_json: {}", ours, error),
        (Err(error), Ok(_)) => prop_assert!(is_deliberate(&error), "refused too much: {}", error),
        (Err(_), Err(_)) => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_like_text_is_accepted_exactly_if_serde_json_accepts_it(text in json_like_text()) {
        agrees(text.as_bytes())?;
    }

    #[test]
    fn any_bytes_are_checked_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        agrees(&bytes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_storable_value_is_accepted_unchanged(value in value(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        prop_assert_eq!(parse::<Value>(&text, &Limits::default()), Ok(value));
    }

    #[test]
    fn truncated_or_damaged_text_is_never_misread(value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = serde_json::to_vec(&value).unwrap();
        let at = at.index(text.len());
        agrees(&text[..at])?;
        text[at] = byte;
        agrees(&text)?;
    }

    #[test]
    fn an_object_with_a_duplicate_key_is_always_rejected(value in value(), key in "[^\u{0}]{0,8}") {
        let key = serde_json::to_string(&key).unwrap();
        let text = format!("{{{key}:{value},\"other \":null,{key}:0}}");
        let refused = matches!(check(text.as_bytes(), &Limits::default()), Err(JsonError::DuplicateKey { .. }));
        prop_assert!(refused, "{}", text);
    }
}

#[test]
fn the_depth_limit_is_capped() {
    let limits = Limits {
        max_depth: 100_000,
        ..Limits::default()
    };
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(parse::<Value>(nested(127).as_bytes(), &limits).is_ok());
    let refused = parse::<Value>(nested(128).as_bytes(), &limits);
    assert!(matches!(
        refused,
        Err(JsonError::TooDeep { limit: 127, .. })
    ));
}

#[test]
fn inexact_numbers_can_be_allowed() {
    let limits = Limits {
        allow_inexact_numbers: true,
        ..Limits::default()
    };
    let text = "0.12345678901234567891";
    let kept: Box<serde_json::value::RawValue> = parse(text.as_bytes(), &limits).unwrap();
    assert_eq!(kept.get(), text);
}
