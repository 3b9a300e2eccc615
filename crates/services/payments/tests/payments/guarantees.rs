//! The six guarantees of the mode `chance`, one test each.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use axum::{Router, http::StatusCode, routing::put};
use postrider_testkit::crash;
use serde_json::json;
use uuid::Uuid;

use crate::support::{House, eventually, nobody, payment};

#[tokio::test]
async fn guarantee_1_a_request_is_always_recorded_with_its_message() {
    let house = House::new(json!({})).await;
    let (status, receipt) = house.post(payment(Uuid::now_v7(), "acc-1", "12.50")).await;
    assert_eq!((status, &receipt["status"]), (202, &json!("PENDING")));
    let uuid: Uuid = serde_json::from_value(receipt["uuid"].clone()).unwrap();
    // Nothing publishes here: request and message are there all the same, and say so.
    let view = house.get(uuid).await;
    assert_eq!(
        (&view["amount"], &view["reason"]),
        (&json!("12.50"), &json!("IN_FLIGHT"))
    );
    let message: (String, i32, serde_json::Value) =
        sqlx::query_as("select status, try_count, payload from payments.outbox where uuid = $1")
            .bind(uuid)
            .fetch_one(&house.pool)
            .await
            .unwrap();
    let content =
        json!({ "uuid": uuid, "account_id": "acc-1", "amount": "12.50", "currency": "USD" });
    assert_eq!(message, ("PENDING".to_owned(), 0, content));
    // One transaction: if the row of the outbox can't be written, there is no request either.
    sqlx::raw_sql("alter table payments.outbox add constraint full_up check (payload ->> 'account_id' <> 'acc-2')")
        .execute(&house.pool)
        .await
        .unwrap();
    let (status, _) = house.post(payment(Uuid::now_v7(), "acc-2", "1")).await;
    assert_eq!(status, 500);
    assert_eq!(
        house.count("select count(*) from payments.request").await,
        1
    );
}

#[tokio::test]
async fn guarantee_2_publication_is_tried_at_most_five_times_and_then_the_row_stays_visible() {
    let house = House::new(json!({})).await;
    house.transport.away.store(true, SeqCst);
    house.open("acc-1", "100").await;
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    house
        .stands(uuid, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;
    assert_eq!(house.transport.tries.load(SeqCst), 5);
    let row: (String, i32, String) =
        sqlx::query_as("select status, try_count, last_error_code from payments.outbox")
            .fetch_one(&house.pool)
            .await
            .unwrap();
    assert_eq!(row, ("EXHAUSTED".to_owned(), 5, "NETWORK_ERROR".to_owned()));
    // The broker comes back; what was given up is not published behind anybody's back.
    house.transport.away.store(false, SeqCst);
    let other = Uuid::now_v7();
    house.pay(other, "acc-1", "1").await;
    house.stands(other, "SUCCEED", None).await;
    assert_eq!(house.balance("acc-1").await, "99.00");
    assert_eq!(house.get(uuid).await["reason"], "OUTBOX_EXHAUSTED");
}

#[tokio::test]
async fn guarantee_3_the_listener_handles_a_message_once_and_an_exception_is_acknowledged() {
    let house = House::new(json!({})).await;
    house.open("acc-1", "100").await;
    house.open("broken", "100").await;
    house.break_account().await;
    house.work();
    let (bad, good) = (Uuid::now_v7(), Uuid::now_v7());
    house.pay(bad, "broken", "10").await;
    house.pay(good, "acc-1", "10").await;
    house.stands(good, "SUCCEED", None).await;
    house.stands(bad, "PENDING", Some("LISTENER_FAILED")).await;
    // Mended or not: the message was acknowledged and does not come again.
    house.mend_account().await;
    eventually("every delivery is finished", async || {
        house
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await
            == 0
    })
    .await;
    assert_eq!(house.balance("broken").await, "100.00");
    assert_eq!(
        house
            .wallet_count("select count(*) from wallet.inbox")
            .await,
        1
    );
    assert_eq!(
        house
            .wallet_count("select count(*) from wallet.failure")
            .await,
        1
    );
    assert_eq!(
        house
            .count("select count(*) from postrider.delivery where state = 'dead'")
            .await,
        0
    );
    house.audit().await;
}

#[tokio::test]
async fn guarantee_3_holds_for_a_panic_too() {
    let house = House::new(json!({})).await;
    house.open("acc-1", "100").await;
    let trap = crash::at("wallet.before_commit").on_every_hit().panic();
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    house.stands(uuid, "PENDING", Some("LISTENER_FAILED")).await;
    drop(trap);
    let again = Uuid::now_v7();
    house.pay(again, "acc-1", "10").await;
    house.stands(again, "SUCCEED", None).await;
    assert_eq!(house.balance("acc-1").await, "90.00");
    let held =
        "select count(*) from postrider.delivery where finished_at is null or state = 'dead'";
    assert_eq!(house.count(held).await, 0, "acknowledged");
    house.audit().await;
}

#[tokio::test]
async fn guarantee_4_inbox_and_deduction_commit_together_and_the_call_back_is_one_attempt() {
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

    let house = House::new(json!({ "callback": { "url": url } })).await;
    house.open("acc-1", "100").await;
    // The first attempt fails just before the commit: neither inbox nor deduction is left of it.
    let trap = crash::at("wallet.before_commit").error();
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "30").await;
    house.stands(uuid, "PENDING", Some("CALLBACK_FAILED")).await;
    assert_eq!(trap.fired(), 1);
    assert_eq!(house.balance("acc-1").await, "70.00");
    assert_eq!(
        house
            .wallet_count("select count(*) from wallet.inbox")
            .await,
        1
    );
    assert_eq!(calls.load(SeqCst), 1, "one attempt, and no other");
    house.audit().await;
}

#[tokio::test]
async fn guarantee_5_a_replay_never_deducts_twice() {
    let house = House::new(json!({})).await;
    house.transport.doubles.store(true, SeqCst);
    house.open("acc-1", "100").await;
    house.work();
    let uuids: Vec<Uuid> = (0..20).map(|_| Uuid::now_v7()).collect();
    for uuid in &uuids {
        house.pay(*uuid, "acc-1", "1").await;
        let (status, replay) = house.post(payment(*uuid, "acc-1", "1.00")).await;
        assert_eq!(status, 200, "{replay}");
    }
    for uuid in &uuids {
        house.stands(*uuid, "SUCCEED", None).await;
    }
    eventually("every delivery is finished", async || {
        house
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await
            == 0
    })
    .await;
    assert_eq!(house.balance("acc-1").await, "80.00");
    house.audit().await;
}

#[tokio::test]
async fn guarantee_6_a_request_may_stay_pending_and_says_why() {
    let house = House::new(json!({ "callback": { "url": nobody() } })).await;
    house.open("acc-1", "100").await;
    house.open("broken", "100").await;
    house.break_account().await;
    house.work();
    let [told, failed, unpublished] = [(); 3].map(|()| Uuid::now_v7());
    house.pay(told, "acc-1", "10").await;
    house.pay(failed, "broken", "10").await;
    house.stands(told, "PENDING", Some("CALLBACK_FAILED")).await;
    house
        .stands(failed, "PENDING", Some("LISTENER_FAILED"))
        .await;
    house.transport.away.store(true, SeqCst);
    house.pay(unpublished, "acc-1", "10").await;
    house
        .stands(unpublished, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;
    let (_, page) = house
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
