//! A failure can always be stored and shown, and contains no secret.

use postrider::failure::{
    Category, Failure, MAX_CODE, MAX_MESSAGE, clean_message, redact, signature,
};
use proptest::prelude::*;

#[test]
fn well_known_codes_have_their_category() {
    for (code, category) in [
        ("ATTACHMENT_API_TIMEOUT", Category::Network),
        ("503", Category::Network),
        ("NETWORK_TIMEOUT", Category::Network),
        ("500", Category::System),
        ("SYSTEM_ERROR", Category::System),
        ("NEVER_SEEN", Category::System),
        ("", Category::System),
        ("CORRUPTED_FILE", Category::Data),
        ("INVALID_FORMAT", Category::Data),
        ("S3_NOT_FOUND", Category::Data),
        ("401", Category::Auth),
        ("403", Category::Auth),
        ("UNAUTHORIZED", Category::Auth),
        ("CASE_NOT_FOUND", Category::Auth),
        ("429", Category::Network),
        ("422", Category::Data),
    ] {
        assert_eq!(Category::from_code(code), category, "{code}");
        assert_eq!(category.as_str().parse(), Ok(category));
    }
}

#[test]
fn network_and_system_are_transient_and_data_and_auth_are_not() {
    let transient = [
        Category::Network,
        Category::System,
        Category::Data,
        Category::Auth,
    ]
    .map(Category::is_transient);
    assert_eq!(transient, [true, true, false, false]);
}

#[test]
fn unstorable_characters_are_replaced_and_long_text_is_truncated() {
    let failure = Failure::new("bad code\0!", "nul \0 and bell \u{7} but\nlines stay");
    assert_eq!(failure.code(), "bad_code__");
    assert_eq!(
        failure.message(),
        "nul \u{FFFD} and bell \u{FFFD} but\nlines stay"
    );
    let long = Failure::new("", "ä".repeat(10_000));
    assert_eq!(long.code(), "UNKNOWN");
    assert!(long.message().len() <= MAX_MESSAGE && long.message().ends_with('…'));
}

#[test]
fn a_failure_message_contains_each_cause_once() {
    let inner = std::io::Error::other("connection reset");
    let outer = std::io::Error::other(Wrapped(inner));
    assert_eq!(
        Failure::from_error("NETWORK_ERROR", &outer).message(),
        "call failed: connection reset"
    );
}

#[derive(Debug, thiserror::Error)]
#[error("call failed")]
struct Wrapped(#[source] std::io::Error);

#[test]
fn secrets_are_redacted() {
    for (text, clean) in [
        (
            "sent Authorization: Bearer abc.def-123 to host",
            "sent Authorization: Bearer [redacted] to host",
        ),
        ("bearer abc", "bearer [redacted]"),
        ("Basic dXNlcjpwYXNz refused", "Basic [redacted] refused"),
        ("basic authentication failed", "basic authentication failed"),
        (
            "postgres://app:s3cr@t@db:5432/x timed out",
            "postgres://app:[redacted]@db:5432/x timed out",
        ),
        (
            "https://host:443/a@b:c is fine",
            "https://host:443/a@b:c is fine",
        ),
        (
            "GET /x?api_key=abc&page=2",
            "GET /x?api_key=[redacted]&page=2",
        ),
        ("password = hunter2, retry", "password = [redacted], retry"),
        (
            r#"{"client_secret":"a\"b c","n":1}"#,
            r#"{"client_secret":"[redacted]","n":1}"#,
        ),
        (
            r#""{\"password\":\"a b\",\"n\":1}""#,
            r#""{\"password\":\"[redacted]\",\"n\":1}""#,
        ),
        ("X-Api-Key: k-1; next", "X-Api-Key: [redacted]; next"),
        (
            "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.c2ln back",
            "got [redacted] back",
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- tail",
            "[redacted] tail",
        ),
        ("the token is missing", "the token is missing"),
        ("order 17 timed out", "order 17 timed out"),
    ] {
        assert_eq!(redact(text), clean);
    }
}

#[test]
fn failures_that_differ_in_particulars_share_a_signature() {
    for (message, group) in [
        (
            "order 17 at \"10.0.0.3:443\" timed out after 1.5s",
            "order <n> at <s> timed out after <n>s",
        ),
        (
            "no case 6f1c2a34-9d1e-4b7a-8c55-0a1b2c3d4e5f",
            "no case <uuid>",
        ),
        (
            "sha256 e3b0c44298fc1c14 differs at 0x7fff",
            "sha<n> <hex> differs at <hex>",
        ),
        ("can't open  'a b'\n now", "can't open <s> now"),
        ("2024-05-06T07:08:09.123Z: late", "<n>-<n>-<n>T<n>Z: late"),
        ("deadbeef cafe added", "deadbeef cafe added"),
    ] {
        assert_eq!(signature(message), group);
    }
    assert_eq!(Failure::new("503", "try 3").signature(), "503: try <n>");
}

fn short_text() -> impl Strategy<Value = String> {
    prop::collection::vec(any::<char>(), 0..6).prop_map(String::from_iter)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::cases()))]

    #[test]
    fn any_text_becomes_a_storable_message(text in short_text(), repeat in 1..300_usize) {
        let failure = Failure::new(&text, text.repeat(repeat));
        prop_assert!(failure.message().len() <= MAX_MESSAGE && failure.code().len() <= MAX_CODE);
        prop_assert!(!failure.message().contains('\0') && failure.code().is_ascii());
    }

    #[test]
    fn redacting_twice_changes_nothing(
        text in r#"[a-z ]{0,5}(bearer |password=|token: "|https://user:|api_key='|secret: )[a-zA-Z0-9]{1,12}(@host/x| |"|',)[a-z ]{0,5}"#,
    ) {
        let once = redact(&text);
        prop_assert_eq!(redact(&once), once);
    }

    #[test]
    fn a_secret_value_never_survives(
        before in "[ -~]{0,8}",
        key in "(password|api_key|client-secret|ACCESS_TOKEN|x-api-key)",
        sign in "(=|: |\": \"|='|=\")",
        secret in "[A-Za-z0-9+/_.-]{12,40}",
    ) {
        let text = format!("{before} {key}{sign}{secret}");
        prop_assert!(!clean_message(&text).contains(&secret), "{}", clean_message(&text));
    }

    #[test]
    fn numbers_and_uuids_never_split_a_group(a in any::<u64>(), b in any::<u64>(), x in any::<u128>(), y in any::<u128>()) {
        let text = |n: u64, id: u128| format!("item {n} of {} failed", uuid::Uuid::from_u128(id));
        prop_assert_eq!(signature(&text(a, x)), signature(&text(b, y)));
    }

    #[test]
    fn a_signature_has_no_digit_and_a_bounded_length(text in short_text(), tail in "[0-9a-f'\" -]{0,40}", repeat in 1..20_usize) {
        let signature = signature(&format!("{text}{tail}").repeat(repeat));
        prop_assert!(signature.len() <= 240 && !signature.contains(char::is_numeric));
    }
}
