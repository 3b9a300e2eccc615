//! The six guarantees of mode `chance`.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use axum::{Router, http::StatusCode, routing::put};
use postrider_testkit::crash;
use serde_json::json;
use uuid::Uuid;

use crate::support::{Fixture, eventually, payment, unreachable_url};

#[tokio::test]
async fn guarantee_1_a_request_is_always_recorded_with_its_message() {
    let fixture = Fixture::new(json!({})).await;
    let (status, receipt) = fixture
        .post(payment(Uuid::now_v7(), "acc-1", "12.50"))
        .await;
    assert_eq!((status, &receipt["status"]), (202, &json!("PENDING")));
    let uuid: Uuid = serde_json::from_value(receipt["uuid"].clone()).unwrap();
    // No publisher runs: request and message are recorded all the same.
    let view = fixture.get(uuid).await;
    assert_eq!(
        (&view["amount"], &view["reason"]),
        (&json!("12.50"), &json!("IN_FLIGHT"))
    );
    let message: (String, i32, serde_json::Value) =
        sqlx::query_as("select status, try_count, payload from payments.outbox where uuid = $1")
            .bind(uuid)
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
    let content =
        json!({ "uuid": uuid, "account_id": "acc-1", "amount": "12.50", "currency": "USD" });
    assert_eq!(message, ("PENDING".to_owned(), 0, content));
    // One transaction: if the outbox row can't be written, there is no request either.
    sqlx::raw_sql("alter table payments.outbox add constraint rejected_account check (payload ->> 'account_id' <> 'acc-2')")
        .execute(&fixture.pool)
        .await
        .unwrap();
    let (status, _) = fixture.post(payment(Uuid::now_v7(), "acc-2", "1")).await;
    assert_eq!(status, 500);
    assert_eq!(
        fixture.count("select count(*) from payments.request").await,
        1
    );
}

#[tokio::test]
async fn guarantee_2_publishing_is_attempted_at_most_five_times_and_the_row_stays_visible() {
    let fixture = Fixture::new(json!({})).await;
    fixture.transport.unavailable.store(true, SeqCst);
    fixture.open("acc-1", "100").await;
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    fixture
        .wait_for_status(uuid, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;
    assert_eq!(fixture.transport.publish_calls.load(SeqCst), 5);
    let row: (String, i32, String) =
        sqlx::query_as("select status, try_count, last_error_code from payments.outbox")
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
    assert_eq!(row, ("EXHAUSTED".to_owned(), 5, "NETWORK_ERROR".to_owned()));
    // The broker comes back; an exhausted message is not published without a redrive.
    fixture.transport.unavailable.store(false, SeqCst);
    let other = Uuid::now_v7();
    fixture.pay(other, "acc-1", "1").await;
    fixture.wait_for_status(other, "SUCCEED", None).await;
    assert_eq!(fixture.balance("acc-1").await, "99.00");
    assert_eq!(fixture.get(uuid).await["reason"], "OUTBOX_EXHAUSTED");
}

#[tokio::test]
async fn guarantee_3_a_message_is_handled_once_and_acknowledged_even_if_that_fails() {
    let fixture = Fixture::new(json!({})).await;
    fixture.open("acc-1", "100").await;
    fixture.open("broken", "100").await;
    fixture.break_account().await;
    fixture.start_workers();
    let (bad, good) = (Uuid::now_v7(), Uuid::now_v7());
    fixture.pay(bad, "broken", "10").await;
    fixture.pay(good, "acc-1", "10").await;
    fixture.wait_for_status(good, "SUCCEED", None).await;
    fixture
        .wait_for_status(bad, "PENDING", Some("LISTENER_FAILED"))
        .await;
    // The message was acknowledged, so it is not redelivered even after the repair.
    fixture.repair_account().await;
    eventually("every delivery is finished", async || {
        fixture
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await
            == 0
    })
    .await;
    assert_eq!(fixture.balance("broken").await, "100.00");
    assert_eq!(
        fixture
            .wallet_count("select count(*) from wallet.inbox")
            .await,
        1
    );
    assert_eq!(
        fixture
            .wallet_count("select count(*) from wallet.failure")
            .await,
        1
    );
    assert_eq!(
        fixture
            .count("select count(*) from postrider.delivery where state = 'dead'")
            .await,
        0
    );
    fixture.audit().await;
}

#[tokio::test]
async fn guarantee_3_holds_for_panics() {
    let fixture = Fixture::new(json!({})).await;
    fixture.open("acc-1", "100").await;
    let crash_point = crash::at("wallet.before_commit").on_every_hit().panic();
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    fixture
        .wait_for_status(uuid, "PENDING", Some("LISTENER_FAILED"))
        .await;
    drop(crash_point);
    let again = Uuid::now_v7();
    fixture.pay(again, "acc-1", "10").await;
    fixture.wait_for_status(again, "SUCCEED", None).await;
    assert_eq!(fixture.balance("acc-1").await, "90.00");
    let unfinished =
        "select count(*) from postrider.delivery where finished_at is null or state = 'dead'";
    assert_eq!(fixture.count(unfinished).await, 0, "acknowledged");
    fixture.audit().await;
}

#[tokio::test]
async fn guarantee_4_inbox_and_deduction_commit_together_and_the_callback_is_attempted_once() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let answer = put(move || {
        counted.fetch_add(1, SeqCst);
        async { StatusCode::INTERNAL_SERVER_ERROR }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/internal/requests/{uuid}", answer);
    tokio::spawn(async move { axum::serve(listener, router).await });

    let fixture = Fixture::new(json!({ "callback": { "url": url } })).await;
    fixture.open("acc-1", "100").await;
    // The first attempt fails just before the commit and leaves neither inbox entry nor deduction.
    let crash_point = crash::at("wallet.before_commit").error();
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "30").await;
    fixture
        .wait_for_status(uuid, "PENDING", Some("CALLBACK_FAILED"))
        .await;
    assert_eq!(crash_point.fired(), 1);
    assert_eq!(fixture.balance("acc-1").await, "70.00");
    assert_eq!(
        fixture
            .wallet_count("select count(*) from wallet.inbox")
            .await,
        1
    );
    assert_eq!(calls.load(SeqCst), 1, "exactly one attempt");
    fixture.audit().await;
}

#[tokio::test]
async fn guarantee_5_a_replay_never_deducts_twice() {
    let fixture = Fixture::new(json!({})).await;
    fixture.transport.duplicates.store(true, SeqCst);
    fixture.open("acc-1", "100").await;
    fixture.start_workers();
    let uuids: Vec<Uuid> = (0..20).map(|_| Uuid::now_v7()).collect();
    for uuid in &uuids {
        fixture.pay(*uuid, "acc-1", "1").await;
        let (status, replay) = fixture.post(payment(*uuid, "acc-1", "1.00")).await;
        assert_eq!(status, 200, "{replay}");
    }
    for uuid in &uuids {
        fixture.wait_for_status(*uuid, "SUCCEED", None).await;
    }
    eventually("every delivery is finished", async || {
        fixture
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await
            == 0
    })
    .await;
    assert_eq!(fixture.balance("acc-1").await, "80.00");
    fixture.audit().await;
}

#[tokio::test]
async fn guarantee_6_a_pending_request_shows_why() {
    let fixture = Fixture::new(json!({ "callback": { "url": unreachable_url() } })).await;
    fixture.open("acc-1", "100").await;
    fixture.open("broken", "100").await;
    fixture.break_account().await;
    fixture.start_workers();
    let [handled, failed, unpublished] = [(); 3].map(|()| Uuid::now_v7());
    fixture.pay(handled, "acc-1", "10").await;
    fixture.pay(failed, "broken", "10").await;
    fixture
        .wait_for_status(handled, "PENDING", Some("CALLBACK_FAILED"))
        .await;
    fixture
        .wait_for_status(failed, "PENDING", Some("LISTENER_FAILED"))
        .await;
    fixture.transport.unavailable.store(true, SeqCst);
    fixture.pay(unpublished, "acc-1", "10").await;
    fixture
        .wait_for_status(unpublished, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;
    let (_, page) = fixture
        .call(axum::http::Method::GET, "/payments?status=PENDING", None)
        .await;
    let reasons: Vec<&str> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|view| view["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        ["OUTBOX_EXHAUSTED", "LISTENER_FAILED", "CALLBACK_FAILED"]
    );
}
