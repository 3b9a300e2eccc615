//! Mode `assured`: a payment is retried until it is done or a dead letter.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};
use std::time::Duration;

use axum::{Router, http::StatusCode, routing::put};
use postrider::dead_letter::{DeadLetters, Filter};
use postrider::transport::DELIVERIES;
use postrider_payments::WALLET_OUTBOX;
use serde_json::json;
use uuid::Uuid;

use crate::support::{Fixture, eventually};

#[tokio::test]
async fn an_unavailable_broker_costs_no_attempt() {
    let fixture = Fixture::new(json!({ "delivery": "assured" })).await;
    fixture.transport.unavailable.store(true, SeqCst);
    fixture.open("acc-1", "100").await;
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    eventually("publishing was attempted more than once", async || {
        fixture.transport.publish_calls.load(SeqCst) > 1
    })
    .await;
    assert_eq!(
        fixture
            .count("select try_count::bigint from payments.outbox")
            .await,
        0
    );
    assert_eq!(fixture.get(uuid).await["reason"], "IN_FLIGHT");
    fixture.transport.unavailable.store(false, SeqCst);
    fixture.wait_for_status(uuid, "SUCCEED", None).await;
}

#[tokio::test]
async fn a_message_that_cannot_be_handled_is_retried_and_becomes_a_dead_letter() {
    let fixture = Fixture::new(json!({ "delivery": "assured" })).await;
    fixture.open("broken", "100").await;
    fixture.open("acc-1", "100").await;
    fixture.break_account().await;
    fixture.start_workers();
    let (bad, good) = (Uuid::now_v7(), Uuid::now_v7());
    fixture.pay(bad, "broken", "10").await;
    fixture.pay(good, "acc-1", "10").await;
    fixture.wait_for_status(good, "SUCCEED", None).await;
    let letters = DeadLetters::new([&DELIVERIES]).unwrap();
    let found = eventually("it is a dead letter", async || {
        let found = letters
            .list(&fixture.pool, &Filter::default(), None, 10)
            .await
            .unwrap();
        if found.len() == 1 {
            Ok(found)
        } else {
            Err(found.len())
        }
    })
    .await;
    assert_eq!(
        (found[0].code.as_str(), found[0].attempts),
        ("UNEXPECTED", 3)
    );
    fixture
        .wait_for_status(bad, "PENDING", Some("LISTENER_FAILED"))
        .await;
    assert_eq!(fixture.balance("broken").await, "100.00");
    fixture.audit().await;
}

#[tokio::test]
async fn a_temporary_failure_costs_redeliveries_but_no_payment() {
    let fixture =
        Fixture::new(json!({ "delivery": "assured", "wallet": { "max_attempts": 100 } })).await;
    fixture.open("broken", "100").await;
    fixture.break_account().await;
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "broken", "10").await;
    eventually("the consumer has failed once", async || {
        fixture
            .count("select count(*) from postrider.delivery where attempts > 0")
            .await
            == 1
    })
    .await;
    fixture.repair_account().await;
    fixture.wait_for_status(uuid, "SUCCEED", None).await;
    assert_eq!(fixture.balance("broken").await, "90.00");
}

#[tokio::test]
async fn a_callback_is_retried_until_it_succeeds() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let answer = put(move || {
        let call = counted.fetch_add(1, SeqCst);
        async move {
            if call < 3 {
                StatusCode::BAD_GATEWAY
            } else {
                StatusCode::OK
            }
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/internal/requests/{uuid}", answer);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let fixture = Fixture::new(json!({ "delivery": "assured", "callback": { "url": url } })).await;
    fixture.open("acc-1", "100").await;
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    fixture
        .wait_for_status(uuid, "PENDING", Some("CALLBACK_FAILED"))
        .await;
    eventually("the callback was delivered", async || {
        fixture
            .wallet_count("select count(*) from wallet.outbox")
            .await
            == 0
    })
    .await;
    assert_eq!(calls.load(SeqCst), 4);
}

#[tokio::test]
async fn a_contradicting_callback_becomes_a_dead_letter() {
    let fixture = Fixture::new(json!({ "delivery": "assured" })).await;
    fixture.open("acc-1", "100").await;
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    let path = format!("/internal/requests/{uuid}");
    let forged = json!({ "status": "FAILED", "reason": "FORGED" });
    fixture
        .call(axum::http::Method::PUT, &path, Some(forged))
        .await;
    fixture.start_workers();
    let letters = DeadLetters::new([&WALLET_OUTBOX]).unwrap();
    let found = postrider_testkit::within(Duration::from_secs(90), "a dead letter", async || {
        let found = letters
            .list(&fixture.wallet, &Filter::default(), None, 10)
            .await
            .unwrap();
        if found.len() == 1 {
            Ok(found)
        } else {
            Err(found.len())
        }
    })
    .await;
    assert_eq!(found[0].code, "409");
    assert_eq!(fixture.get(uuid).await["status"], "FAILED");
}
