//! Every page: opens without trouble, reads without script, fits a phone, keeps itself fresh.

use postrider_testkit::browser::{DESK, PHONE};
use serde_json::json;

use super::House;
use crate::orders::order;

/// Each page and words that must be on it.
fn pages(letter: &str) -> Vec<(String, Vec<&'static str>)> {
    let page = |path: &str, words: &[&'static str]| (path.to_owned(), words.to_vec());
    vec![
        page(
            "/",
            &[
                "Overview",
                "Done a minute",
                "Breakers",
                "Leaders",
                "Workers",
                "orders.outbox_orders",
            ],
        ),
        page("/services/orders", &["Orders", "ok-1", "succeeded"]),
        page(
            "/services/payments",
            &["Payments", "Nothing was handed in yet."],
        ),
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
        page("/dead?filter=code:NOTHING", &["No dead letter fits."]),
        page(letter, &["Payload", "Attempts", "NO_DATA", "Redrive"]),
        page("/alerts/board", &["Alerts", "Judged by the same rules"]),
        page("/search?q=ok-1", &["Timeline", "ok-1"]),
        page("/search?q=no-such-thing", &["Nothing is known by"]),
        page("/trace/ok-1", &["Timeline", "ok-1"]),
    ]
}

async fn furnished() -> Option<(House, String)> {
    let house = House::with(&[]).await?;
    house.post("/do/order", &order("ok-1")).await;
    house.dead_letter("NONE").await;
    let listed = house
        .serving
        .json("/dead-letters?filter=service:exports")
        .await;
    let id = listed["items"][0]["id"].as_i64().expect("a dead letter");
    Some((house, format!("/dead/exports.export_job_input/{id}")))
}

#[tokio::test]
async fn every_page_opens_without_trouble_in_light_and_dark_on_a_desk_and_a_phone() {
    let Some((house, letter)) = furnished().await else {
        return;
    };
    for (path, words) in pages(&letter) {
        for (window, dark) in [(DESK, false), (PHONE, true)] {
            house.page.window(window).await;
            house.page.dark(dark).await;
            house.open_until(&path, &words).await;
            house.assert_fits(&path).await;
            let ground = house
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
    house.assert_no_trouble();
}

#[tokio::test]
async fn every_page_reads_without_script() {
    let Some((house, letter)) = furnished().await else {
        return;
    };
    house.page.scripts(false).await;
    for (path, words) in pages(&letter) {
        house.open_until(&path, &words).await;
    }
    house.assert_no_trouble();
}

#[tokio::test]
async fn a_page_keeps_itself_fresh_and_says_when_it_cannot() {
    let Some(house) = House::with(&[]).await else {
        return;
    };
    let page = &house.page;
    house.open("/services/orders").await;
    page.until("document.body.innerText.includes('Nothing was handed in yet.')")
        .await;
    house.post("/do/order", &order("fresh-1")).await;
    page.until("document.body.innerText.includes('fresh-1')")
        .await;
    page.until("document.body.innerText.includes('succeeded')")
        .await;
    house.assert_no_trouble();
    let House { serving, page, .. } = house;
    serving.kill().await;
    page.until("!document.querySelector('[data-note]').hidden")
        .await;
}

#[tokio::test]
async fn listings_are_filtered_and_paged() {
    let Some(house) = House::with(&[]).await else {
        return;
    };
    for n in 0..30 {
        let mut order = order(&format!("key-{n:02}"));
        order["account"] = json!(if n < 3 { "few" } else { "many" });
        house.post("/do/order", &order).await;
    }
    house.open("/services/orders").await;
    let page = &house.page;
    let rows = "document.querySelectorAll('tbody tr').length";
    assert_eq!(page.eval(rows).await, 25);
    page.follow("a[rel=next]").await;
    assert_eq!(page.eval(rows).await, 5);
    assert!(page.text().await.contains("key-00"));
    house.open("/services/orders").await;
    page.fill("input[name=owner]", "few").await;
    page.follow(".filters button").await;
    assert_eq!(page.eval(rows).await, 3);
    house.assert_no_trouble();
}

#[tokio::test]
async fn what_is_not_there_is_a_page_for_people() {
    let Some(house) = House::with(&[]).await else {
        return;
    };
    for (path, words) in [
        ("/nowhere", "Nothing is here"),
        ("/services/nothing", "No service has this name"),
        ("/dead/nothing/1", "No such item"),
        ("/dead?filter=colour:red", "colour"),
        (
            "/services/orders?status=sad",
            "No job of this service stands so",
        ),
    ] {
        house.open(path).await;
        let text = house.page.text().await;
        assert!(text.contains(words), "{path}: {text}");
        house.assert_fits(path).await;
    }
}

#[tokio::test]
async fn payments_that_are_stuck_are_settled_by_clicking() {
    let nobody = ["--set", "payments.callback.url=http://127.0.0.1:1"];
    let at_once = ["--set", "payments.reconcile.after=0"];
    let Some(house) = House::with(&[nobody, at_once].concat()).await else {
        return;
    };
    let account = json!({ "account_id": "acc-1", "currency": "USD", "balance": "5" });
    house.post("/wallet/accounts", &account).await;
    let payment = json!({ "account_id": "acc-1", "amount": "2", "currency": "USD" });
    house.post("/payments", &payment).await;
    house
        .open_until("/services/payments", &["CALLBACK_FAILED"])
        .await;
    let page = &house.page;
    page.follow("#repair").await;
    page.eval("document.querySelector('[name=reason]').required = false")
        .await;
    page.follow("#yes").await;
    assert!(page.text().await.contains("Enter a reason"));
    page.fill("input[name=reason]", "the line was cut").await;
    page.follow("#yes").await;
    let told = page.text().await;
    assert!(
        told.contains("1 of 1 settled") && told.contains("CALLBACK_FAILED"),
        "{told}"
    );
    house.open_until("/services/payments", &["SUCCEED"]).await;
    house.assert_fits("/services/payments").await;
    house.assert_no_trouble();
}
