//! Reconciliation settles what is stuck, from the wallet's facts alone.

use std::sync::atomic::Ordering::SeqCst;

use postrider::transport::{Message, MessageId, Transport};
use postrider_testkit::crash;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{House, eventually, nobody};

fn settled(report: &Value) -> Vec<(Uuid, String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let requests = report["requests"].as_array().unwrap();
    let mut all: Vec<_> = requests
        .iter()
        .map(|r| {
            (
                word(&r["uuid"]).parse().unwrap(),
                word(&r["status"]),
                word(&r["why"]),
            )
        })
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn every_way_to_be_stuck_is_settled_as_the_wallet_knows_it() {
    let house = House::new(json!({ "callback": { "url": nobody() } })).await;
    house.open("acc-1", "100").await;
    house.open("broken", "100").await;
    house.break_account().await;
    house.work();
    let [paid, poor, failed, unpublished] = [(); 4].map(|()| Uuid::now_v7());
    house.pay(paid, "acc-1", "10").await;
    house.pay(poor, "acc-1", "1000").await;
    house.pay(failed, "broken", "10").await;
    for uuid in [paid, poor] {
        house.stands(uuid, "PENDING", Some("CALLBACK_FAILED")).await;
    }
    house
        .stands(failed, "PENDING", Some("LISTENER_FAILED"))
        .await;
    house.transport.away.store(true, SeqCst);
    house.pay(unpublished, "acc-1", "10").await;
    house
        .stands(unpublished, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;

    let report = house.reconcile().await;
    assert_eq!(
        (&report["looked_at"], &report["settled"]),
        (&json!(4), &json!(4)),
        "{report}"
    );
    let mut expected = vec![
        (paid, "SUCCEED".to_owned(), "CALLBACK_FAILED".to_owned()),
        (poor, "FAILED".to_owned(), "CALLBACK_FAILED".to_owned()),
        (failed, "FAILED".to_owned(), "LISTENER_FAILED".to_owned()),
        (
            unpublished,
            "FAILED".to_owned(),
            "OUTBOX_EXHAUSTED".to_owned(),
        ),
    ];
    expected.sort();
    assert_eq!(settled(&report), expected);
    house.stands(paid, "SUCCEED", None).await;
    house
        .stands(poor, "FAILED", Some("INSUFFICIENT_FUNDS"))
        .await;
    house
        .stands(failed, "FAILED", Some("LISTENER_FAILED"))
        .await;
    house
        .stands(unpublished, "FAILED", Some("OUTBOX_EXHAUSTED"))
        .await;
    let again = house.reconcile().await;
    assert_eq!(
        (&again["looked_at"], &again["settled"]),
        (&json!(0), &json!(0))
    );
    let audited = house
        .count("select sum(cardinality(items)) from postrider.audit where action = 'reconcile'")
        .await;
    assert_eq!(audited, 4);
    house.audit().await;
}

#[tokio::test]
async fn a_message_that_comes_after_its_request_was_declared_failed_deducts_nothing() {
    let house = House::new(json!({})).await;
    house.open("acc-1", "100").await;
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    // Nothing was published yet; the reconciliation puts its tombstone first.
    let report = house.reconcile().await;
    assert_eq!(
        settled(&report),
        [(uuid, "FAILED".to_owned(), "IN_FLIGHT".to_owned())]
    );
    house.work();
    eventually("the late message was taken", async || {
        house
            .count("select count(*) from payments.outbox where status = 'PUBLISHED'")
            .await
            == 1
            && house
                .count("select count(*) from postrider.delivery where finished_at is null")
                .await
                == 0
    })
    .await;
    // And once more, under another message id.
    let content =
        json!({ "uuid": uuid, "account_id": "acc-1", "amount": "10.00", "currency": "USD" });
    let id = MessageId::new(Uuid::new_v4());
    let message = Message::new(id, postrider_payments::requests::TOPIC, content.to_string());
    house.transport.publish(&[message]).await;
    eventually("that one was taken, too", async || {
        house
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await
            == 0
    })
    .await;
    assert_eq!(house.balance("acc-1").await, "100.00");
    assert_eq!(house.get(uuid).await["status"], "FAILED");
    house.audit().await;
}

#[tokio::test]
async fn a_payment_of_a_moment_ago_is_left_alone() {
    let house = House::new(json!({ "reconcile": { "after": "5m" } })).await;
    house.open("acc-1", "100").await;
    let (young, old) = (Uuid::now_v7(), Uuid::now_v7());
    house.pay(young, "acc-1", "10").await;
    house.pay(old, "acc-1", "10").await;
    sqlx::query(
        "update payments.request set created_at = now() - interval '6 minutes' where uuid = $1",
    )
    .bind(old)
    .execute(&house.pool)
    .await
    .unwrap();
    let report = house.reconcile().await;
    assert_eq!(
        settled(&report),
        [(old, "FAILED".to_owned(), "IN_FLIGHT".to_owned())]
    );
    house.work();
    house.stands(young, "SUCCEED", None).await;
    assert_eq!(house.balance("acc-1").await, "90.00");
}

#[tokio::test]
async fn a_reconciliation_that_is_killed_between_its_two_sides_is_finished_by_the_next() {
    let house = House::new(json!({})).await;
    house.open("acc-1", "100").await;
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    let trap = crash::at("reconcile.after_tombstones").error();
    let (status, _) = house
        .call(axum::http::Method::POST, "/payments/reconcile", None)
        .await;
    assert_ne!(status, 200);
    assert_eq!(trap.fired(), 1);
    assert_eq!(house.get(uuid).await["status"], "PENDING");
    house.work();
    eventually("the late message was taken", async || {
        house
            .count("select count(*) from payments.outbox where status = 'PUBLISHED'")
            .await
            == 1
            && house
                .count("select count(*) from postrider.delivery where finished_at is null")
                .await
                == 0
    })
    .await;
    assert_eq!(
        house.balance("acc-1").await,
        "100.00",
        "the tombstone holds"
    );
    house.reconcile().await;
    house.stands(uuid, "FAILED", Some("IN_FLIGHT")).await;
}

#[tokio::test]
async fn two_reconciliations_beside_live_traffic_never_contradict_the_wallet() {
    let house = House::new(json!({ "wallet": { "batch": 5 } })).await;
    house.open("acc-1", "1000").await;
    house.work();
    house.work();
    let uuids: Vec<Uuid> = (0..150).map(|_| Uuid::now_v7()).collect();
    let traffic = async {
        for uuid in &uuids {
            house.pay(*uuid, "acc-1", "1").await;
        }
    };
    let reconciling = async || {
        let mut settled = 0;
        for _ in 0..25 {
            let report = house.reconcile().await;
            settled += report["settled"].as_u64().unwrap();
        }
        settled
    };
    let ((), one, two) = tokio::join!(traffic, reconciling(), reconciling());
    eventually("every payment has ended", async || {
        house
            .count("select count(*) from payments.request where status = 'PENDING'")
            .await
            == 0
    })
    .await;
    let settled = house
        .count("select count(*) from payments.request where settled_by = 'reconcile'")
        .await;
    assert_eq!(
        one + two,
        settled.unsigned_abs(),
        "each was settled by one of them"
    );
    house.audit().await;
}
