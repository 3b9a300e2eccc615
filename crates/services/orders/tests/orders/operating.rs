//! Cancel and redrive.

use axum::http::{Method, StatusCode};
use postrider::{
    dead_letter::{Action, DeadLetters, Filter, Order, Total},
    lease::{Operator, Queue},
};
use postrider_inspect::doctor::{Doctor, Severity};
use postrider_orders::{CHECKS, OUTBOX_ORDERS, REOPEN};
use serde_json::json;

use crate::support::{House, behind_http, eventually, order, paper, settings};

async fn cancel(house: &House, key: &str) -> (StatusCode, serde_json::Value) {
    house
        .call(Method::POST, &format!("/do/order/{key}/cancel"), None)
        .await
}

async fn redrive(house: &House, key: &str, allow_stale: bool) -> (StatusCode, serde_json::Value) {
    let body = json!({ "allow_stale": allow_stale, "reason": "a test" });
    house
        .call(
            Method::POST,
            &format!("/do/order/{key}/redrive"),
            Some(body),
        )
        .await
}

#[tokio::test]
async fn a_pending_order_is_cancelled_and_never_sent() {
    let house = House::new().await;
    house.post(order("k-1")).await;
    let (status, view) = cancel(&house, "k-1").await;
    assert_eq!(status, StatusCode::OK, "{view}");
    assert_eq!(
        (&view["status"], &view["outbox"]["last_error_code"]),
        (&json!("failed"), &json!("CANCELLED"))
    );
    let broker = paper(json!([]));
    house.work(&settings(json!({})), broker.clone());
    house.post(order("k-2")).await;
    house.stands("k-2", "succeeded").await;
    assert!(!broker.orders().contains_key("k-1"));
    let (status, problem) = cancel(&house, "k-1").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-cancellable"))
    );
    assert_eq!(cancel(&house, "unknown").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_order_that_may_have_reached_the_broker_is_not_cancelled() {
    let house = House::new().await;
    let broker = paper(json!([{ "do": { "fail_after": { "status": 500 } } }]));
    house.work(
        &settings(json!({ "backoff": [3600] })),
        behind_http(&broker).await,
    );
    house.post(order("k-1")).await;
    house.stands("k-1", "failed").await;
    let (status, problem) = cancel(&house, "k-1").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-cancellable"))
    );
}

#[tokio::test]
async fn an_order_that_the_broker_certainly_has_not_got_can_be_cancelled() {
    let house = House::new().await;
    let broker = paper(json!([{ "do": { "fail": { "status": 429 } } }]));
    house.work(
        &settings(json!({ "backoff": [3600] })),
        behind_http(&broker).await,
    );
    house.post(order("k-1")).await;
    house.stands("k-1", "failed").await;
    assert_eq!(cancel(&house, "k-1").await.0, StatusCode::OK);
}

#[tokio::test]
async fn an_aborted_order_is_redriven_only_when_told_that_it_may_be_stale() {
    let house = House::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    house.work(&settings(json!({})), broker.clone());
    house.post(order("k-1")).await;
    house.stands("k-1", "aborted").await;
    let (status, problem) = redrive(&house, "k-1", false).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("redrive-not-confirmed"))
    );
    assert_eq!(house.get("k-1").await["outbox"]["status"], "aborted");
    assert_eq!(redrive(&house, "k-1", true).await.0, StatusCode::OK);
    let view = house.stands("k-1", "succeeded").await;
    assert_eq!(view["status"], "succeeded");
    let (status, problem) = redrive(&house, "k-1", true).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-redrivable"))
    );
    let audited: i64 = sqlx::query_scalar(
        "select count(*) from postrider.audit where action = 'redrive' and reason = 'a test'",
    )
    .fetch_one(&house.pool)
    .await
    .unwrap();
    assert_eq!(audited, 1);
}

#[tokio::test]
async fn an_expired_order_is_not_redriven() {
    let house = House::new().await;
    house.work(&settings(json!({})), paper(json!([])));
    let mut stale = order("stale");
    stale["expires_at"] = json!("2020-01-01T00:00:00Z");
    house.post(stale).await;
    house.stands("stale", "aborted").await;
    let (status, problem) = redrive(&house, "stale", true).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-redrivable"))
    );
}

fn dead_letters() -> DeadLetters {
    let letters = DeadLetters::new([&OUTBOX_ORDERS]).unwrap();
    letters.guard(OUTBOX_ORDERS.name, REOPEN)
}

#[tokio::test]
async fn a_cancelled_order_is_no_dead_letter_and_no_redrive_sends_it() {
    let house = House::new().await;
    house.post(order("cancelled")).await;
    assert_eq!(cancel(&house, "cancelled").await.0, StatusCode::OK);
    let report = Doctor::new([&OUTBOX_ORDERS]).examine(&house.pool).await;
    let found = report.findings.iter().find(|f| f.check == "dead-letters");
    assert_eq!(found.unwrap().severity, Severity::Ok);
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    house.work(&settings(json!({})), broker.clone());
    house.post(order("rejected")).await;
    house.stands("rejected", "aborted").await;

    let (letters, all) = (dead_letters(), Filter::default());
    let listed = letters.list(&house.pool, &all, None, 10).await.unwrap();
    let codes: Vec<&str> = listed.iter().map(|letter| letter.code.as_str()).collect();
    assert_eq!(codes, ["NO_FUNDS"]);
    assert_eq!(letters.count(&house.pool, &all, 10).await.unwrap(), 1);
    let shown = letters.show(&house.pool, OUTBOX_ORDERS.name, 1).await;
    assert!(!shown.unwrap().unwrap().dead);

    let mut redrive_all = Order::new(Action::Redrive, all);
    redrive_all.confirmed = true;
    let total = letters
        .carry_out(&house.pool, &Operator::new("somebody"), &redrive_all)
        .await
        .unwrap();
    let one = Total {
        changed: 1,
        skipped: 0,
    };
    assert_eq!(total, one);
    house.stands("rejected", "succeeded").await;

    let (status, problem) = redrive(&house, "cancelled", true).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-redrivable"))
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("it was cancelled"), "{detail}");
    // Nor if somebody asks for it by its number.
    let may: Vec<i64> = sqlx::query_scalar("select orders.reopen('{1}')")
        .fetch_one(&house.pool)
        .await
        .unwrap();
    assert!(may.is_empty());
    let view = house.get("cancelled").await;
    assert_eq!(
        (&view["status"], &view["outbox"]["status"]),
        (&json!("failed"), &json!("aborted"))
    );
    assert!(!broker.orders().contains_key("cancelled"));
}

#[tokio::test]
async fn an_order_that_the_broker_calls_cancelled_is_a_dead_letter() {
    let house = House::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "CANCELLED" } } }]));
    house.work(&settings(json!({})), broker);
    house.post(order("k-1")).await;
    house.stands("k-1", "aborted").await;
    let count = dead_letters()
        .count(&house.pool, &Filter::default(), 10)
        .await;
    assert_eq!(count.unwrap(), 1);
    assert_eq!(redrive(&house, "k-1", true).await.0, StatusCode::OK);
    house.stands("k-1", "succeeded").await;
}

#[tokio::test]
async fn an_error_that_is_over_is_not_shown_as_todays() {
    let house = House::new().await;
    let broker = paper(json!([
        { "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } },
        { "times": 1, "do": { "fail": { "status": 429 } } },
    ]));
    house.work(
        &settings(json!({ "backoff": [2] })),
        behind_http(&broker).await,
    );
    house.post(order("k-1")).await;
    let view = house.stands("k-1", "aborted").await;
    assert_eq!(view["outbox"]["last_error_code"], "NO_FUNDS");
    let (status, view) = redrive(&house, "k-1", true).await;
    assert_eq!(status, StatusCode::OK, "{view}");
    let view = house.stands("k-1", "failed").await;
    assert_eq!(view["outbox"]["last_error_code"], "429");
    let view = house.stands("k-1", "succeeded").await;
    assert_eq!(
        view["outbox"],
        json!({ "status": "succeeded", "attempts": 1, "last_error_code": null, "last_error_msg": null })
    );
    // It is not forgotten.
    let journal: Vec<String> =
        sqlx::query_scalar("select code from postrider.attempt where code is not null order by at")
            .fetch_all(&house.pool)
            .await
            .unwrap();
    assert_eq!(journal, ["NO_FUNDS", "429"]);
}

#[tokio::test]
async fn a_redriven_order_begins_without_the_error_of_its_former_life() {
    let house = House::new().await;
    house.post(order("k-1")).await;
    house
        .execute(
            "update orders.outbox_orders set status = 'aborted', finished_at = now(), last_error_code = 'NO_FUNDS',
                    last_error_msg = 'no funds', cause = 'NO_FUNDS: no funds'",
        )
        .await;
    house
        .execute("update postrider.ledger set state = 'failed', finished_at = now()")
        .await;
    let (status, view) = redrive(&house, "k-1", true).await;
    assert_eq!(status, StatusCode::OK, "{view}");
    assert_eq!(
        view["outbox"],
        json!({ "status": "pending", "attempts": 0, "last_error_code": null, "last_error_msg": null })
    );
}

#[tokio::test]
async fn a_bulk_redrive_waits_for_the_ledger_before_it_holds_an_order() {
    let house = House::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    house.work(&settings(json!({})), broker);
    house.post(order("k-1")).await;
    house.stands("k-1", "aborted").await;

    // As a cancel does: the entry, then the row.
    let mut tx = house.pool.begin().await.unwrap();
    let entry = "select 1 from postrider.ledger where key = 'k-1' for update";
    sqlx::query(entry).execute(&mut *tx).await.unwrap();
    let pool = house.pool.clone();
    let redriving = tokio::spawn(async move {
        let mut order = Order::new(Action::Redrive, Filter::default());
        order.confirmed = true;
        dead_letters()
            .carry_out(&pool, &Operator::new("somebody"), &order)
            .await
    });
    eventually("the redrive waits for the entry", async || {
        let waits = "select exists (select from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock')";
        let waits: bool = sqlx::query_scalar(waits)
            .fetch_one(&house.pool)
            .await
            .unwrap();
        waits
    })
    .await;
    let row = "select 1 from orders.outbox_orders where idempotency_key = 'k-1' for update nowait";
    sqlx::query(row).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(redriving.await.unwrap().unwrap().changed, 1);
    house.stands("k-1", "succeeded").await;
}

/// What the doctor says about orders.
async fn found(house: &House) -> Vec<(String, Vec<String>)> {
    let doctor = Doctor::new([&OUTBOX_ORDERS]).checks(CHECKS.iter().copied());
    let report = doctor.examine(&house.pool).await;
    let found = report.at_least(Severity::Critical).into_iter();
    found
        .filter(|finding| finding.check.starts_with("orders/"))
        .map(|finding| (finding.check.clone(), finding.items.clone()))
        .collect()
}

#[tokio::test]
async fn the_doctor_finds_an_order_that_ended_otherwise_than_its_ledger_entry() {
    let house = House::new().await;
    house.work(&settings(json!({})), paper(json!([])));
    house.post(order("k-1")).await;
    house.stands("k-1", "succeeded").await;
    assert_eq!(found(&house).await, []);
    let tamper = "update postrider.ledger set state = 'failed' where key = 'k-1'";
    house.execute(tamper).await;
    let said = ("orders/ledger-agrees".to_owned(), vec!["k-1".to_owned()]);
    assert_eq!(found(&house).await, [said]);
}

#[tokio::test]
async fn the_doctor_finds_a_waiting_order_with_another_requests_ledger_entry() {
    let house = House::new().await;
    house.post(order("k-1")).await;
    assert_eq!(found(&house).await, []);
    let tamper = "update postrider.ledger set digest = sha256('another') where key = 'k-1'";
    house.execute(tamper).await;
    let said = ("orders/ledger-entry".to_owned(), vec!["k-1".to_owned()]);
    assert_eq!(found(&house).await, [said]);
}

#[tokio::test]
async fn a_redrive_of_the_row_alone_sends_nothing() {
    let house = House::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    house.work(&settings(json!({})), broker.clone());
    house.post(order("k-1")).await;
    house.stands("k-1", "aborted").await;
    let mut tx = house.pool.begin().await.unwrap();
    let queue = Queue::new(&OUTBOX_ORDERS).unwrap();
    queue
        .redrive(&mut tx, &Operator::new("somebody"), &[1])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    eventually("it is aborted again", async || {
        let view = house.get("k-1").await;
        if view["outbox"]["last_error_code"] == "REDRIVE_NOT_CONFIRMED"
            && view["outbox"]["status"] == "aborted"
        {
            Ok(())
        } else {
            Err(view)
        }
    })
    .await;
    assert!(broker.orders().is_empty());
}
