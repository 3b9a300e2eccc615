//! Two requests have the same digest if, and only if, they mean the same order.

use postrider_orders::model::{Order, OrderRequest};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::order;

fn digest(text: &str) -> String {
    let request: OrderRequest = serde_json::from_str(text).unwrap();
    Order::try_from(request).unwrap().digest.to_string()
}

fn of(value: &Value) -> String {
    digest(&value.to_string())
}

#[test]
fn equivalent_spellings_of_a_request_have_one_digest() {
    let plain = of(&order("k-1"));
    assert_eq!(
        plain,
        digest(&serde_json::to_string_pretty(&order("k-1")).unwrap())
    );
    let escaped = order("k-1").to_string().replace("ACME", "\\u0041CM\\u0045");
    assert_eq!(plain, digest(&escaped));
    for quantity in ["10", "10.0", "1e1", "\"10.00\"", "\"0010\""] {
        let text = order("k-1")
            .to_string()
            .replace("\"quantity\":\"10\"", &format!("\"quantity\":{quantity}"));
        assert_eq!(plain, digest(&text), "{quantity}");
    }
    let mut short = order("k-1");
    for defaulted in ["version", "time_in_force", "expires_at", "tags"] {
        short.as_object_mut().unwrap().remove(defaulted);
    }
    assert_eq!(plain, of(&short), "defaults are filled in");
    let mut zoned = order("k-1");
    zoned["expires_at"] = json!("2030-01-01T02:00:00+02:00");
    let mut utc = order("k-1");
    utc["expires_at"] = json!("2030-01-01T00:00:00Z");
    assert_eq!(of(&zoned), of(&utc));
    assert_ne!(of(&utc), plain);
}

#[test]
fn any_change_of_meaning_changes_the_digest() {
    let plain = of(&order("k-1"));
    let changes = [
        ("idempotency_key", json!("k-2")),
        ("account", json!("A2")),
        ("symbol", json!("ACNE")),
        ("side", json!("sell")),
        ("quantity", json!("10.000000000000000001")),
        ("limit_price", json!("12.51")),
        ("time_in_force", json!("gtc")),
        ("expires_at", json!("2030-01-01T00:00:00Z")),
        ("tags", json!({ "desk": "7" })),
    ];
    for (field, value) in changes {
        let mut changed = order("k-1");
        changed[field] = value;
        assert_ne!(plain, of(&changed), "{field}");
    }
}

#[test]
fn decimals_that_round_to_one_double_have_different_digests() {
    let with = |quantity: &str| digest(&order("k").to_string().replace("\"10\"", quantity));
    assert_ne!(with("9007199254740993"), with("9007199254740992"));
    assert_ne!(with("0.1"), with("0.10000000000000001"));
}

proptest! {
    #[test]
    fn every_spelling_of_a_quantity_has_one_digest(digits in 1u64..1_000_000_000, zeros in 0usize..6, shift in 0i32..6) {
        let mut plain = order("k");
        plain["quantity"] = json!(digits.to_string());
        let spelt = format!("{digits}{}.{}e-{zeros}", "0".repeat(zeros), "0".repeat(zeros + 1));
        let text = plain.to_string().replace(&format!("\"quantity\":\"{digits}\""), &format!("\"quantity\":{spelt}"));
        prop_assert_eq!(of(&plain), digest(&text));
        let shifted = format!("{digits}e-{shift}");
        let mut other = order("k");
        other["quantity"] = json!(shifted);
        prop_assert_eq!(of(&plain) == of(&other), shift == 0);
    }

    #[test]
    fn tags_in_any_order_have_one_digest(tags in proptest::collection::btree_map("[a-z]{1,6}", "\\PC{0,8}", 0..6)) {
        let pairs: Vec<String> = tags.iter().map(|(k, v)| format!("{}:{}", json!(k), json!(v))).collect();
        let backwards: Vec<String> = pairs.iter().rev().cloned().collect();
        let with = |pairs: &[String]| order("k").to_string().replace("\"tags\":{}", &format!("\"tags\":{{{}}}", pairs.join(",")));
        prop_assert_eq!(digest(&with(&pairs)), digest(&with(&backwards)));
    }
}

fn canonical(tags: &str) -> String {
    let text = order("k")
        .to_string()
        .replace("\"tags\":{}", &format!("\"tags\":{tags}"));
    let request: OrderRequest = serde_json::from_str(&text).unwrap();
    Order::try_from(request).unwrap().canonical
}

/// RFC 8785, sections 3.2.2 and 3.2.4: literals, numbers and strings. Its first number has one digit less here, because a
/// number that a double can't represent is rejected.
#[test]
fn the_example_of_rfc_8785_is_reproduced_exactly() {
    let tags = r#"{ "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false] }"#;
    let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
    assert_eq!(
        canonical(tags),
        format!(
            r#"{{"account":"A1","expires_at":null,"idempotency_key":"k","limit_price":"12.5","quantity":"10","side":"buy","symbol":"ACME","tags":{expected},"time_in_force":"day","type":"limit","version":"1.1"}}"#
        )
    );
}

/// RFC 8785, section 3.2.3: sorted by UTF-16 code units, not by characters.
#[test]
fn keys_are_sorted_as_in_rfc_8785() {
    let tags = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew","1":"One","\ud83d\ude00":"Emoji",
        "\u0080":"Control","\u00f6":"Diaeresis"}"#;
    let form = canonical(tags);
    let sorted = [
        "Carriage Return",
        "One",
        "Control",
        "Diaeresis",
        "Euro Sign",
        "Emoji",
        "Hebrew",
    ];
    let places = sorted.map(|value| form.find(value).unwrap());
    assert!(places.is_sorted(), "{form}");
}

/// RFC 8785, appendix B: numbers as ECMAScript prints them.
#[test]
fn numbers_are_printed_as_in_rfc_8785() {
    for (bits, text) in [
        (0x0000_0000_0000_0000_u64, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
    ] {
        let number = f64::from_bits(bits);
        let form = canonical(&format!("{{\"n\":{number:?}}}"));
        assert!(
            form.contains(&format!("\"tags\":{{\"n\":{text}}}")),
            "{number:?}: {form}"
        );
    }
}

/// Any JSON that a tag can hold.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-1_000_000_i64..1_000_000).prop_map(Value::from),
        (-1_000_000_i32..1_000_000).prop_map(|n| json!(f64::from(n) / 64.0)),
        "[^\u{0}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[^\u{0}]{1,4}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Another spelling of the same value: reversed keys, white space, escaped characters, numbers with an exponent.
fn rewritten(value: &Value) -> String {
    let text = |text: &str| -> String {
        let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
        format!("\"{}\"", units.collect::<String>())
    };
    match value {
        Value::Null | Value::Bool(_) => format!(" {value}\n"),
        Value::Number(number) => format!("\t{number}e0 "),
        Value::String(string) => text(string),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(rewritten).collect();
            format!("[ {} ]", items.join(" , "))
        }
        Value::Object(map) => {
            let pairs = map.iter().rev();
            let pairs: Vec<String> = pairs
                .map(|(k, v)| format!("{} : {}", text(k), rewritten(v)))
                .collect();
            format!("{{\r\n{}}}", pairs.join(",\r\n"))
        }
    }
}

proptest! {
    #[test]
    fn equivalent_spellings_of_tags_have_one_digest(tags in proptest::collection::btree_map("[^\u{0}]{1,4}", value(), 0..4)) {
        let tags = Value::Object(tags.into_iter().collect());
        let mut plain = order("k");
        plain["tags"] = tags;
        prop_assert_eq!(of(&plain), digest(&rewritten(&plain)));
    }

    #[test]
    fn tags_with_different_meanings_have_different_digests(one in value(), other in value()) {
        let with = |value: &Value| {
            let mut order = order("k");
            order["tags"] = json!({ "t": value });
            of(&order)
        };
        // 1 and 1.0 are one number in JSON; everything else that differs here differs in meaning.
        let same = canonical(&json!({ "t": one }).to_string()) == canonical(&json!({ "t": other }).to_string());
        prop_assert_eq!(same, with(&one) == with(&other));
        if one.is_string() || one.is_boolean() || one.is_null() {
            prop_assert_eq!(one == other, with(&one) == with(&other));
        }
    }
}
