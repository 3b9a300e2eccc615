//! External text is always escaped.

use postrider_testkit::browser::{DESKTOP, PHONE};
use serde_json::json;

use super::Fixture;
use crate::orders::order;

/// Markup, quotes, template braces, right-to-left text and an endless word.
fn hostile() -> String {
    format!(
        "<script>alert('x')</script>\"><img src=x onerror=alert(1)>' {{{{7*7}}}} <b>\u{202e}evil\u{202c} &amp; \u{0} {}",
        "W".repeat(10_000)
    )
    .replace('\u{0}', "")
}

/// The part that every page must show as text.
const SHOWN: &str = "<script>alert('x')</script>";

/// Inserts it into every table that pages show: a dead message, a worker, a leader, a breaker, an audit entry.
const PLANT: [&str; 6] = [
    "insert into postrider.outbox (topic, payload, state, finished_at, attempts, error_code, error_category, error_message, cause, ordering_key)
     values (left($1, 200), to_json($1::text), 'dead', now(), 1, $1, 'SYSTEM', $1, left($1, 200), left($1, 200))",
    "insert into postrider.attempt (work_table, item_id, attempt, worker, started_at, outcome, code, category, message)
     select 'postrider.outbox', id, 1, $1, now(), 'dead', $1, $1, $1 from postrider.outbox",
    "insert into postrider.worker (id, name, work_table, kinds, ttl) values ('w', $1, $1, array[$1], interval '1 hour')",
    "insert into postrider.leader (name, term) values (left($1, 60), 1)",
    "insert into postrider.breaker (dependency, process, state, failures, open_until)
     values (left($1, 60), gen_random_uuid(), 'open', 3, now() + interval '1 hour')",
    "insert into postrider.audit (actor, action, work_table, items, reason)
     select $1, $1, 'postrider.outbox', array[id], $1 from postrider.outbox",
];

#[tokio::test]
async fn hostile_text_in_every_field_stays_text() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    let text = hostile();
    let pool = fixture.db.pool();
    for statement in PLANT {
        sqlx::query(statement)
            .bind(&text)
            .execute(&pool)
            .await
            .unwrap();
    }
    let mut hostile_order = order("hostile");
    hostile_order["account"] = json!(SHOWN);
    let _ = fixture
        .serving
        .post("/do/order")
        .json(&hostile_order)
        .send()
        .await;
    let encoded =
        |text: &str| -> String { url::form_urlencoded::byte_serialize(text.as_bytes()).collect() };
    let title = encoded(&text.chars().take(190).collect::<String>());
    let upload = fixture
        .serving
        .post(&format!("/protocols?title={title}"))
        .header("content-type", "text/plain")
        .body("Inclusion Criteria\n1. Age 18 years or older\n");
    let uploaded = upload.send().await.unwrap();
    assert!(uploaded.status().is_success());
    let uploaded: serde_json::Value = uploaded.json().await.unwrap();
    let protocol = uploaded["id"].as_str().unwrap();
    let id: i64 = sqlx::query_scalar("select id from postrider.outbox where state = 'dead'")
        .fetch_one(&pool)
        .await
        .unwrap();
    let letter = format!("/dead/postrider.outbox/{id}");
    let query = encoded(&text.chars().take(300).collect::<String>());
    let searched = format!("/search?q={query}");
    let filtered = format!("/dead?filter={query}");
    for path in [
        "/",
        "/dead",
        &letter,
        "/services/protocols",
        &searched,
        &filtered,
        "/services/orders",
    ] {
        for window in [DESKTOP, PHONE] {
            fixture.page.window(window).await;
            fixture.open(path).await;
            if path != "/services/orders" {
                // The overview may be a few seconds old; it refreshes itself.
                let shown = "document.documentElement.innerHTML.includes('&lt;script&gt;alert')";
                fixture.page.until(shown).await;
            }
            let planted = "document.querySelectorAll('img[src=x], main script, b').length";
            assert_eq!(fixture.page.eval(planted).await, 0, "{path}");
            fixture.assert_fits(path).await;
        }
    }
    // The confirmation page shows the title, and the entered reason after an error.
    fixture.ask(protocol, "approve").await;
    let (shown, planted) = (
        "document.documentElement.innerHTML.includes('&lt;script&gt;alert')",
        "document.querySelectorAll('img[src=x], main script, b').length",
    );
    assert_eq!(fixture.page.eval(shown).await, true);
    let form = "document.querySelector('[name=reason]')";
    fixture
        .page
        .eval(&format!("{form}.value = {}", json!(text)))
        .await;
    fixture.page.follow("#yes").await;
    let asked = fixture.page.text().await;
    assert!(asked.contains("at most 500 characters"), "{asked}");
    assert_eq!(
        fixture.page.eval(&format!("{form}.value")).await,
        json!(text),
        "as it was typed"
    );
    assert_eq!(fixture.page.eval(planted).await, 0);
    fixture.assert_fits("approve").await;
    // A browser logs blocked content; that is not a violation.
    let troubles: Vec<String> = fixture
        .page
        .errors()
        .into_iter()
        .filter(|error| !error.contains("status of 4"))
        .collect();
    assert!(troubles.is_empty(), "{troubles:#?}");
}
