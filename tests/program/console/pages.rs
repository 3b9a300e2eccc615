//! Every page opens without errors, works without JavaScript, fits a phone and refreshes itself.

use postrider_testkit::browser::{DESKTOP, PHONE};
use serde_json::json;

use super::Fixture;
use crate::orders::order;

/// Each page with words that it must contain.
fn pages(letter: &str) -> Vec<(String, Vec<&'static str>)> {
    let page = |path: &str, words: &[&'static str]| (path.to_owned(), words.to_vec());
    vec![
        page(
            "/",
            &[
                "Overview",
                "Throughput (per minute)",
                "Breakers",
                "Leaders",
                "Workers",
                "orders.outbox_orders",
            ],
        ),
        page("/services/orders", &["Orders", "ok-1", "succeeded"]),
        page("/services/payments", &["Payments", "Nothing here yet."]),
        page("/services/exports", &["Exports", "FAILED", "NO_DATA"]),
        page("/services/evidence", &["Evidence"]),
        page("/services/protocols", &["Protocols"]),
        page(
            "/dead",
            &[
                "Dead letters",
                "Causes",
                "NO_DATA",
                "exports.export_job_input",
            ],
        ),
        page("/dead?filter=code:NOTHING", &["No dead letter matches."]),
        page(letter, &["Payload", "Attempts", "NO_DATA", "Redrive"]),
        page("/alerts/board", &["Alerts", "The same rules as"]),
        page("/search?q=ok-1", &["Timeline", "ok-1"]),
        page("/search?q=no-such-thing", &["Nothing found for"]),
        page("/trace/ok-1", &["Timeline", "ok-1"]),
    ]
}

async fn fixture_with_data() -> Option<(Fixture, String)> {
    let fixture = Fixture::with(&[]).await?;
    fixture.post("/do/order", &order("ok-1")).await;
    fixture.dead_letter("NONE").await;
    let listed = fixture
        .serving
        .json("/dead-letters?filter=service:exports")
        .await;
    let id = listed["items"][0]["id"].as_i64().expect("a dead letter");
    Some((fixture, format!("/dead/exports.export_job_input/{id}")))
}

#[tokio::test]
async fn every_page_opens_without_errors_in_light_and_dark_on_desktop_and_phone() {
    let Some((fixture, letter)) = fixture_with_data().await else {
        return;
    };
    for (path, words) in pages(&letter) {
        for (window, dark) in [(DESKTOP, false), (PHONE, true)] {
            fixture.page.window(window).await;
            fixture.page.dark(dark).await;
            fixture.open_until(&path, &words).await;
            fixture.assert_fits(&path).await;
            let ground = fixture
                .page
                .eval("getComputedStyle(document.body).backgroundColor")
                .await;
            let expected = if dark {
                "rgb(17, 20, 24)"
            } else {
                "rgb(246, 244, 239)"
            };
            assert_eq!(ground, expected, "{path}");
        }
    }
    fixture.assert_no_errors();
}

#[tokio::test]
async fn every_page_works_without_javascript() {
    let Some((fixture, letter)) = fixture_with_data().await else {
        return;
    };
    fixture.page.scripts(false).await;
    for (path, words) in pages(&letter) {
        fixture.open_until(&path, &words).await;
    }
    fixture.assert_no_errors();
}

#[tokio::test]
async fn page_refreshes_itself_and_says_when_it_cannot() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    let page = &fixture.page;
    fixture.open("/services/orders").await;
    page.until("document.body.innerText.includes('Nothing here yet.')")
        .await;
    fixture.post("/do/order", &order("fresh-1")).await;
    page.until("document.body.innerText.includes('fresh-1')")
        .await;
    page.until("document.body.innerText.includes('succeeded')")
        .await;
    fixture.assert_no_errors();
    let Fixture { serving, page, .. } = fixture;
    serving.kill().await;
    page.until("!document.querySelector('[data-note]').hidden")
        .await;
}

#[tokio::test]
async fn listings_are_filtered_and_paged() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    for n in 0..30 {
        let mut order = order(&format!("key-{n:02}"));
        order["account"] = json!(if n < 3 { "few" } else { "many" });
        fixture.post("/do/order", &order).await;
    }
    fixture.open("/services/orders").await;
    let page = &fixture.page;
    let rows = "document.querySelectorAll('tbody tr').length";
    assert_eq!(page.eval(rows).await, 25);
    page.follow("a[rel=next]").await;
    assert_eq!(page.eval(rows).await, 5);
    assert!(page.text().await.contains("key-00"));
    fixture.open("/services/orders").await;
    page.fill("input[name=owner]", "few").await;
    page.follow(".filters button").await;
    assert_eq!(page.eval(rows).await, 3);
    fixture.assert_no_errors();
}

#[tokio::test]
async fn missing_pages_show_a_readable_error_page() {
    let Some(fixture) = Fixture::with(&[]).await else {
        return;
    };
    for (path, words) in [
        ("/nowhere", "Not found"),
        ("/services/nothing", "No service has this name"),
        ("/dead/nothing/1", "There is no such item"),
        ("/dead?filter=colour:red", "colour"),
        (
            "/services/orders?status=sad",
            "The service has no such state",
        ),
    ] {
        fixture.open(path).await;
        let text = fixture.page.text().await;
        assert!(text.contains(words), "{path}: {text}");
        fixture.assert_fits(path).await;
    }
}

#[tokio::test]
async fn stuck_payments_can_be_reconciled() {
    let no_receiver = ["--set", "payments.callback.url=http://127.0.0.1:1"];
    let at_once = ["--set", "payments.reconcile.after=0"];
    let Some(fixture) = Fixture::with(&[no_receiver, at_once].concat()).await else {
        return;
    };
    let account = json!({ "account_id": "acc-1", "currency": "USD", "balance": "5" });
    fixture.post("/wallet/accounts", &account).await;
    let payment = json!({ "account_id": "acc-1", "amount": "2", "currency": "USD" });
    fixture.post("/payments", &payment).await;
    fixture
        .open_until("/services/payments", &["CALLBACK_FAILED"])
        .await;
    let page = &fixture.page;
    page.follow("#repair").await;
    page.eval("document.querySelector('[name=reason]').required = false")
        .await;
    page.follow("#yes").await;
    assert!(page.text().await.contains("Enter a reason"));
    page.fill("input[name=reason]", "the line was cut").await;
    page.follow("#yes").await;
    let text = page.text().await;
    assert!(
        text.contains("1 of 1 settled") && text.contains("CALLBACK_FAILED"),
        "{text}"
    );
    fixture.open_until("/services/payments", &["SUCCEED"]).await;
    fixture.assert_fits("/services/payments").await;
    fixture.assert_no_errors();
}
