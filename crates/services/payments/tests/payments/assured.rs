//! The mode `assured`: until it is done, or a dead letter.

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

use crate::support::{House, eventually};

#[tokio::test]
async fn a_broker_that_is_away_costs_no_try_and_nothing_is_given_up() {
    let house = House::new(json!({ "delivery": "assured" })).await;
    house.transport.away.store(true, SeqCst);
    house.open("acc-1", "100").await;
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    eventually("it was tried more than once", async || {
        house.transport.tries.load(SeqCst) > 1
    })
    .await;
    assert_eq!(
        house
            .count("select try_count::bigint from payments.outbox")
            .await,
        0
    );
    assert_eq!(house.get(uuid).await["reason"], "IN_FLIGHT");
    house.transport.away.store(false, SeqCst);
    house.stands(uuid, "SUCCEED", None).await;
}

#[tokio::test]
async fn a_message_that_the_listener_fails_over_comes_again_and_is_a_dead_letter_then() {
    let house = House::new(json!({ "delivery": "assured" })).await;
    house.open("broken", "100").await;
    house.open("acc-1", "100").await;
    house.break_account().await;
    house.work();
    let (bad, good) = (Uuid::now_v7(), Uuid::now_v7());
    house.pay(bad, "broken", "10").await;
    house.pay(good, "acc-1", "10").await;
    house.stands(good, "SUCCEED", None).await;
    let letters = DeadLetters::new([&DELIVERIES]).unwrap();
    let found = eventually("it is a dead letter", async || {
        let found = letters
            .list(&house.pool, &Filter::default(), None, 10)
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
    house.stands(bad, "PENDING", Some("LISTENER_FAILED")).await;
    assert_eq!(house.balance("broken").await, "100.00");
    house.audit().await;
}

#[tokio::test]
async fn a_cause_that_passes_costs_redeliveries_and_no_payment() {
    let house =
        House::new(json!({ "delivery": "assured", "wallet": { "max_attempts": 100 } })).await;
    house.open("broken", "100").await;
    house.break_account().await;
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "broken", "10").await;
    eventually("the listener has failed over it", async || {
        house
            .count("select count(*) from postrider.delivery where attempts > 0")
            .await
            == 1
    })
    .await;
    house.mend_account().await;
    house.stands(uuid, "SUCCEED", None).await;
    assert_eq!(house.balance("broken").await, "90.00");
}

#[tokio::test]
async fn the_orchestrator_is_told_until_it_listens() {
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
    let house = House::new(json!({ "delivery": "assured", "callback": { "url": url } })).await;
    house.open("acc-1", "100").await;
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    house.stands(uuid, "PENDING", Some("CALLBACK_FAILED")).await;
    eventually("it was told", async || {
        house
            .wallet_count("select count(*) from wallet.outbox")
            .await
            == 0
    })
    .await;
    assert_eq!(calls.load(SeqCst), 4);
}

#[tokio::test]
async fn an_orchestrator_that_knows_another_end_is_a_dead_letter_and_no_endless_loop() {
    let house = House::new(json!({ "delivery": "assured" })).await;
    house.open("acc-1", "100").await;
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    let path = format!("/internal/requests/{uuid}");
    let forged = json!({ "status": "FAILED", "reason": "FORGED" });
    house
        .call(axum::http::Method::PUT, &path, Some(forged))
        .await;
    house.work();
    let letters = DeadLetters::new([&WALLET_OUTBOX]).unwrap();
    let found = postrider_testkit::within(Duration::from_secs(90), "a dead letter", async || {
        let found = letters
            .list(&house.wallet, &Filter::default(), None, 10)
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
    assert_eq!(house.get(uuid).await["status"], "FAILED");
}
