//! Cancel and redrive.

use axum::http::{Method, StatusCode};
use postrider::{
    dead_letter::{Action, DeadLetters, Filter, OperationRequest, Total},
    lease::{Operator, Queue},
};
use postrider_inspect::doctor::{Doctor, Severity};
use postrider_orders::{CHECKS, OUTBOX_ORDERS, REOPEN};
use serde_json::json;

use crate::support::{Fixture, eventually, order, over_http, paper, settings};

async fn cancel(fixture: &Fixture, key: &str) -> (StatusCode, serde_json::Value) {
    fixture
        .call(Method::POST, &format!("/do/order/{key}/cancel"), None)
        .await
}

async fn redrive(
    fixture: &Fixture,
    key: &str,
    allow_stale: bool,
) -> (StatusCode, serde_json::Value) {
    let body = json!({ "allow_stale": allow_stale, "reason": "a test" });
    fixture
        .call(
            Method::POST,
            &format!("/do/order/{key}/redrive"),
            Some(body),
        )
        .await
}

#[tokio::test]
async fn a_pending_order_is_cancelled_and_never_sent() {
    let fixture = Fixture::new().await;
    fixture.post(order("k-1")).await;
    let (status, view) = cancel(&fixture, "k-1").await;
    assert_eq!(status, StatusCode::OK, "{view}");
    assert_eq!(
        (&view["status"], &view["outbox"]["last_error_code"]),
        (&json!("failed"), &json!("CANCELLED"))
    );
    let broker = paper(json!([]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    fixture.post(order("k-2")).await;
    fixture.wait_for_status("k-2", "succeeded").await;
    assert!(!broker.orders().contains_key("k-1"));
    let (status, problem) = cancel(&fixture, "k-1").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-cancellable"))
    );
    assert_eq!(cancel(&fixture, "unknown").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_order_that_may_have_reached_the_broker_is_not_cancelled() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "do": { "fail_after": { "status": 500 } } }]));
    fixture.start_workers(
        &settings(json!({ "backoff": [3600] })),
        over_http(&broker).await,
    );
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "failed").await;
    let (status, problem) = cancel(&fixture, "k-1").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-cancellable"))
    );
}

#[tokio::test]
async fn an_order_that_certainly_did_not_reach_the_broker_can_be_cancelled() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "do": { "fail": { "status": 429 } } }]));
    fixture.start_workers(
        &settings(json!({ "backoff": [3600] })),
        over_http(&broker).await,
    );
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "failed").await;
    assert_eq!(cancel(&fixture, "k-1").await.0, StatusCode::OK);
}

#[tokio::test]
async fn an_aborted_order_is_redriven_only_with_allow_stale() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "aborted").await;
    let (status, problem) = redrive(&fixture, "k-1", false).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("redrive-not-confirmed"))
    );
    assert_eq!(fixture.get("k-1").await["outbox"]["status"], "aborted");
    assert_eq!(redrive(&fixture, "k-1", true).await.0, StatusCode::OK);
    let view = fixture.wait_for_status("k-1", "succeeded").await;
    assert_eq!(view["status"], "succeeded");
    let (status, problem) = redrive(&fixture, "k-1", true).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-redrivable"))
    );
    let audited: i64 = sqlx::query_scalar(
        "select count(*) from postrider.audit where action = 'redrive' and reason = 'a test'",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(audited, 1);
}

#[tokio::test]
async fn an_expired_order_is_not_redriven() {
    let fixture = Fixture::new().await;
    fixture.start_workers(&settings(json!({})), paper(json!([])));
    let mut stale = order("stale");
    stale["expires_at"] = json!("2020-01-01T00:00:00Z");
    fixture.post(stale).await;
    fixture.wait_for_status("stale", "aborted").await;
    let (status, problem) = redrive(&fixture, "stale", true).await;
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
async fn a_cancelled_order_is_not_a_dead_letter_and_cannot_be_redriven() {
    let fixture = Fixture::new().await;
    fixture.post(order("cancelled")).await;
    assert_eq!(cancel(&fixture, "cancelled").await.0, StatusCode::OK);
    let report = Doctor::new([&OUTBOX_ORDERS]).examine(&fixture.pool).await;
    let found = report.findings.iter().find(|f| f.check == "dead-letters");
    assert_eq!(found.unwrap().severity, Severity::Ok);
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    fixture.post(order("rejected")).await;
    fixture.wait_for_status("rejected", "aborted").await;

    let (letters, all) = (dead_letters(), Filter::default());
    let listed = letters.list(&fixture.pool, &all, None, 10).await.unwrap();
    let codes: Vec<&str> = listed.iter().map(|letter| letter.code.as_str()).collect();
    assert_eq!(codes, ["NO_FUNDS"]);
    assert_eq!(letters.count(&fixture.pool, &all, 10).await.unwrap(), 1);
    let shown = letters.show(&fixture.pool, OUTBOX_ORDERS.name, 1).await;
    assert!(!shown.unwrap().unwrap().dead);

    let mut redrive_all = OperationRequest::new(Action::Redrive, all);
    redrive_all.confirmed = true;
    let total = letters
        .execute(&fixture.pool, &Operator::new("somebody"), &redrive_all)
        .await
        .unwrap();
    let one = Total {
        changed: 1,
        skipped: 0,
    };
    assert_eq!(total, one);
    fixture.wait_for_status("rejected", "succeeded").await;

    let (status, problem) = redrive(&fixture, "cancelled", true).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-redrivable"))
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("it was cancelled"), "{detail}");
    // Not even by its id.
    let may: Vec<i64> = sqlx::query_scalar("select orders.reopen('{1}')")
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    assert!(may.is_empty());
    let view = fixture.get("cancelled").await;
    assert_eq!(
        (&view["status"], &view["outbox"]["status"]),
        (&json!("failed"), &json!("aborted"))
    );
    assert!(!broker.orders().contains_key("cancelled"));
}

#[tokio::test]
async fn an_order_that_the_broker_rejects_as_cancelled_is_a_dead_letter() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "CANCELLED" } } }]));
    fixture.start_workers(&settings(json!({})), broker);
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "aborted").await;
    let count = dead_letters()
        .count(&fixture.pool, &Filter::default(), 10)
        .await;
    assert_eq!(count.unwrap(), 1);
    assert_eq!(redrive(&fixture, "k-1", true).await.0, StatusCode::OK);
    fixture.wait_for_status("k-1", "succeeded").await;
}

#[tokio::test]
async fn an_overcome_error_is_not_shown() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([
        { "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } },
        { "times": 1, "do": { "fail": { "status": 429 } } },
    ]));
    fixture.start_workers(
        &settings(json!({ "backoff": [2] })),
        over_http(&broker).await,
    );
    fixture.post(order("k-1")).await;
    let view = fixture.wait_for_status("k-1", "aborted").await;
    assert_eq!(view["outbox"]["last_error_code"], "NO_FUNDS");
    let (status, view) = redrive(&fixture, "k-1", true).await;
    assert_eq!(status, StatusCode::OK, "{view}");
    let view = fixture.wait_for_status("k-1", "failed").await;
    assert_eq!(view["outbox"]["last_error_code"], "429");
    let view = fixture.wait_for_status("k-1", "succeeded").await;
    assert_eq!(
        view["outbox"],
        json!({ "status": "succeeded", "attempts": 1, "last_error_code": null, "last_error_msg": null })
    );
    // The attempt log still has it.
    let journal: Vec<String> =
        sqlx::query_scalar("select code from postrider.attempt where code is not null order by at")
            .fetch_all(&fixture.pool)
            .await
            .unwrap();
    assert_eq!(journal, ["NO_FUNDS", "429"]);
}

#[tokio::test]
async fn a_redriven_order_does_not_show_its_previous_error() {
    let fixture = Fixture::new().await;
    fixture.post(order("k-1")).await;
    fixture
        .execute(
            "update orders.outbox_orders set status = 'aborted', finished_at = now(), last_error_code = 'NO_FUNDS',
                    last_error_msg = 'no funds', cause = 'NO_FUNDS: no funds'",
        )
        .await;
    fixture
        .execute("update postrider.ledger set state = 'failed', finished_at = now()")
        .await;
    let (status, view) = redrive(&fixture, "k-1", true).await;
    assert_eq!(status, StatusCode::OK, "{view}");
    assert_eq!(
        view["outbox"],
        json!({ "status": "pending", "attempts": 0, "last_error_code": null, "last_error_msg": null })
    );
}

#[tokio::test]
async fn a_bulk_redrive_locks_the_ledger_entry_before_the_order() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    fixture.start_workers(&settings(json!({})), broker);
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "aborted").await;

    // Like a cancel: the entry first, then the row.
    let mut tx = fixture.pool.begin().await.unwrap();
    let entry = "select 1 from postrider.ledger where key = 'k-1' for update";
    sqlx::query(entry).execute(&mut *tx).await.unwrap();
    let pool = fixture.pool.clone();
    let redriving = tokio::spawn(async move {
        let mut order = OperationRequest::new(Action::Redrive, Filter::default());
        order.confirmed = true;
        dead_letters()
            .execute(&pool, &Operator::new("somebody"), &order)
            .await
    });
    eventually("the redrive waits for the entry", async || {
        let waits = "select exists (select from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock')";
        let waits: bool = sqlx::query_scalar(waits)
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
        waits
    })
    .await;
    let row = "select 1 from orders.outbox_orders where idempotency_key = 'k-1' for update nowait";
    sqlx::query(row).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(redriving.await.unwrap().unwrap().changed, 1);
    fixture.wait_for_status("k-1", "succeeded").await;
}

/// The doctor's findings about orders.
async fn findings(fixture: &Fixture) -> Vec<(String, Vec<String>)> {
    let doctor = Doctor::new([&OUTBOX_ORDERS]).checks(CHECKS.iter().copied());
    let report = doctor.examine(&fixture.pool).await;
    let found = report.at_least(Severity::Critical).into_iter();
    found
        .filter(|finding| finding.check.starts_with("orders/"))
        .map(|finding| (finding.check.clone(), finding.items.clone()))
        .collect()
}

#[tokio::test]
async fn the_doctor_finds_an_order_whose_ledger_entry_disagrees() {
    let fixture = Fixture::new().await;
    fixture.start_workers(&settings(json!({})), paper(json!([])));
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "succeeded").await;
    assert_eq!(findings(&fixture).await, []);
    let tamper = "update postrider.ledger set state = 'failed' where key = 'k-1'";
    fixture.execute(tamper).await;
    let said = ("orders/ledger-agrees".to_owned(), vec!["k-1".to_owned()]);
    assert_eq!(findings(&fixture).await, [said]);
}

#[tokio::test]
async fn the_doctor_finds_an_unfinished_order_with_a_foreign_ledger_entry() {
    let fixture = Fixture::new().await;
    fixture.post(order("k-1")).await;
    assert_eq!(findings(&fixture).await, []);
    let tamper = "update postrider.ledger set digest = sha256('another') where key = 'k-1'";
    fixture.execute(tamper).await;
    let said = ("orders/ledger-entry".to_owned(), vec!["k-1".to_owned()]);
    assert_eq!(findings(&fixture).await, [said]);
}

#[tokio::test]
async fn redriving_only_the_row_sends_nothing() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "aborted").await;
    let mut tx = fixture.pool.begin().await.unwrap();
    let queue = Queue::new(&OUTBOX_ORDERS).unwrap();
    queue
        .redrive(&mut tx, &Operator::new("somebody"), &[1])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    eventually("it is aborted again", async || {
        let view = fixture.get("k-1").await;
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
