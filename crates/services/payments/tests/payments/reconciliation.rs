//! Reconciliation settles stuck payments from the wallet's records alone.

use std::sync::atomic::Ordering::SeqCst;

use postrider::transport::{Message, MessageId, Transport};
use postrider_testkit::crash;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Fixture, eventually, unreachable_url};

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
async fn every_kind_of_stuck_payment_is_settled_from_the_records_of_the_wallet() {
    let fixture = Fixture::new(json!({ "callback": { "url": unreachable_url() } })).await;
    fixture.open("acc-1", "100").await;
    fixture.open("broken", "100").await;
    fixture.break_account().await;
    fixture.start_workers();
    let [paid, poor, failed, unpublished] = [(); 4].map(|()| Uuid::now_v7());
    fixture.pay(paid, "acc-1", "10").await;
    fixture.pay(poor, "acc-1", "1000").await;
    fixture.pay(failed, "broken", "10").await;
    for uuid in [paid, poor] {
        fixture
            .wait_for_status(uuid, "PENDING", Some("CALLBACK_FAILED"))
            .await;
    }
    fixture
        .wait_for_status(failed, "PENDING", Some("LISTENER_FAILED"))
        .await;
    fixture.transport.unavailable.store(true, SeqCst);
    fixture.pay(unpublished, "acc-1", "10").await;
    fixture
        .wait_for_status(unpublished, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;

    let report = fixture.reconcile().await;
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
    fixture.wait_for_status(paid, "SUCCEED", None).await;
    fixture
        .wait_for_status(poor, "FAILED", Some("INSUFFICIENT_FUNDS"))
        .await;
    fixture
        .wait_for_status(failed, "FAILED", Some("LISTENER_FAILED"))
        .await;
    fixture
        .wait_for_status(unpublished, "FAILED", Some("OUTBOX_EXHAUSTED"))
        .await;
    let again = fixture.reconcile().await;
    assert_eq!(
        (&again["looked_at"], &again["settled"]),
        (&json!(0), &json!(0))
    );
    let audited = fixture
        .count("select sum(cardinality(items)) from postrider.audit where action = 'reconcile'")
        .await;
    assert_eq!(audited, 4);
    fixture.audit().await;
}

#[tokio::test]
async fn a_late_message_of_a_failed_request_deducts_nothing() {
    let fixture = Fixture::new(json!({})).await;
    fixture.open("acc-1", "100").await;
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    // Nothing has been published yet, so the reconciliation places its tombstone first.
    let report = fixture.reconcile().await;
    assert_eq!(
        settled(&report),
        [(uuid, "FAILED".to_owned(), "IN_FLIGHT".to_owned())]
    );
    fixture.start_workers();
    eventually("the late message was handled", async || {
        fixture
            .count("select count(*) from payments.outbox where status = 'PUBLISHED'")
            .await
            == 1
            && fixture
                .count("select count(*) from postrider.delivery where finished_at is null")
                .await
                == 0
    })
    .await;
    // Once more, under another message id.
    let content =
        json!({ "uuid": uuid, "account_id": "acc-1", "amount": "10.00", "currency": "USD" });
    let id = MessageId::new(Uuid::new_v4());
    let message = Message::new(id, postrider_payments::requests::TOPIC, content.to_string());
    fixture.transport.publish(&[message]).await;
    eventually("that one was handled too", async || {
        fixture
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await
            == 0
    })
    .await;
    assert_eq!(fixture.balance("acc-1").await, "100.00");
    assert_eq!(fixture.get(uuid).await["status"], "FAILED");
    fixture.audit().await;
}

#[tokio::test]
async fn a_recent_payment_is_not_reconciled() {
    let fixture = Fixture::new(json!({ "reconcile": { "after": "5m" } })).await;
    fixture.open("acc-1", "100").await;
    let (young, old) = (Uuid::now_v7(), Uuid::now_v7());
    fixture.pay(young, "acc-1", "10").await;
    fixture.pay(old, "acc-1", "10").await;
    sqlx::query(
        "update payments.request set created_at = now() - interval '6 minutes' where uuid = $1",
    )
    .bind(old)
    .execute(&fixture.pool)
    .await
    .unwrap();
    let report = fixture.reconcile().await;
    assert_eq!(
        settled(&report),
        [(old, "FAILED".to_owned(), "IN_FLIGHT".to_owned())]
    );
    fixture.start_workers();
    fixture.wait_for_status(young, "SUCCEED", None).await;
    assert_eq!(fixture.balance("acc-1").await, "90.00");
}

#[tokio::test]
async fn an_interrupted_reconciliation_is_completed_by_the_next() {
    let fixture = Fixture::new(json!({})).await;
    fixture.open("acc-1", "100").await;
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    let crash_point = crash::at("reconcile.after_tombstones").error();
    let (status, _) = fixture
        .call(axum::http::Method::POST, "/payments/reconcile", None)
        .await;
    assert_ne!(status, 200);
    assert_eq!(crash_point.fired(), 1);
    assert_eq!(fixture.get(uuid).await["status"], "PENDING");
    fixture.start_workers();
    eventually("the late message was handled", async || {
        fixture
            .count("select count(*) from payments.outbox where status = 'PUBLISHED'")
            .await
            == 1
            && fixture
                .count("select count(*) from postrider.delivery where finished_at is null")
                .await
                == 0
    })
    .await;
    assert_eq!(
        fixture.balance("acc-1").await,
        "100.00",
        "the tombstone holds"
    );
    fixture.reconcile().await;
    fixture
        .wait_for_status(uuid, "FAILED", Some("IN_FLIGHT"))
        .await;
}

#[tokio::test]
async fn concurrent_reconciliations_during_live_traffic_never_contradict_the_wallet() {
    let fixture = Fixture::new(json!({ "wallet": { "batch": 5 } })).await;
    fixture.open("acc-1", "1000").await;
    fixture.start_workers();
    fixture.start_workers();
    let uuids: Vec<Uuid> = (0..150).map(|_| Uuid::now_v7()).collect();
    let traffic = async {
        for uuid in &uuids {
            fixture.pay(*uuid, "acc-1", "1").await;
        }
    };
    let reconciling = async || {
        let mut settled = 0;
        for _ in 0..25 {
            let report = fixture.reconcile().await;
            settled += report["settled"].as_u64().unwrap();
        }
        settled
    };
    let ((), one, two) = tokio::join!(traffic, reconciling(), reconciling());
    eventually("every payment is settled", async || {
        fixture
            .count("select count(*) from payments.request where status = 'PENDING'")
            .await
            == 0
    })
    .await;
    let settled = fixture
        .count("select count(*) from payments.request where settled_by = 'reconcile'")
        .await;
    assert_eq!(
        one + two,
        settled.unsigned_abs(),
        "each was settled by one of them"
    );
    fixture.audit().await;
}
