//! Two requests have one digest exactly when they mean the same order.

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
fn the_way_a_request_is_written_does_not_matter() {
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
fn any_change_of_meaning_matters() {
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
fn neighbours_that_a_double_would_join_stay_apart() {
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
