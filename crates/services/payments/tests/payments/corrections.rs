//! Corrections of the pattern as written, one test each.

use std::sync::atomic::Ordering::SeqCst;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{Fixture, eventually};
use postrider_testkit::crash;

/// "Never redelivered" holds for errors. After a crash before the acknowledgement the message is redelivered, and the inbox
/// prevents a second deduction.
#[tokio::test]
async fn correction_1_after_a_crash_before_the_ack_the_inbox_prevents_a_second_deduction() {
    // A wallet with its own database commits before it acknowledges.
    let fixture = Fixture::with_separate_wallet(json!({})).await;
    fixture.open("acc-1", "100").await;
    let crash_point = crash::at("subscriber.before_batch_ack").error();
    let crashed = CancellationToken::new();
    fixture.start_publisher(&CancellationToken::new());
    fixture.start_wallet(&crashed);
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "30").await;
    eventually("it was deducted and not acknowledged", async || {
        crash_point.fired() == 1
    })
    .await;
    crashed.cancel();
    assert_eq!(
        fixture
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await,
        1
    );
    fixture.start_wallet(&CancellationToken::new());
    eventually("the message was redelivered and acknowledged", async || {
        fixture
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await
            == 0
    })
    .await;
    assert_eq!(fixture.balance("acc-1").await, "70.00");
    assert_eq!(
        fixture
            .wallet_count("select count(*) from wallet.inbox")
            .await,
        1
    );
    fixture.audit().await;
}

/// A wallet with its own database needs its own schema `postrider`, inbox, outbox and worker: no transaction spans both.
#[tokio::test]
async fn correction_2_a_wallet_with_its_own_database_is_independent() {
    let fixture = Fixture::with_separate_wallet(json!({ "delivery": "assured" })).await;
    fixture.open("acc-1", "100").await;
    fixture.start_workers();
    let uuids: Vec<Uuid> = (0..10).map(|_| Uuid::now_v7()).collect();
    for uuid in &uuids {
        fixture.pay(*uuid, "acc-1", "5").await;
    }
    for uuid in &uuids {
        fixture.wait_for_status(*uuid, "SUCCEED", None).await;
    }
    assert_eq!(fixture.balance("acc-1").await, "50.00");
    // The wallet's tables next to the requests are untouched, and there are no requests in the wallet's database.
    assert_eq!(fixture.count("select count(*) from wallet.inbox").await, 0);
    assert_eq!(
        fixture.count("select count(*) from wallet.account").await,
        0
    );
    assert_eq!(
        fixture
            .wallet_count("select count(*) from pg_namespace where nspname = 'payments'")
            .await,
        0
    );
    eventually("the wallet's own outbox is empty", async || {
        fixture
            .wallet_count("select count(*) from wallet.outbox")
            .await
            == 0
    })
    .await;
    let by_worker = "select count(*) from postrider.completion where work_table = 'wallet.outbox'";
    assert!(
        fixture.wallet_count(by_worker).await > 0,
        "delivered by its own worker and recorded in its own schema"
    );
    fixture.audit().await;
}

/// The requests' side can't know that the consumer failed. The wallet records it after the rollback; without the wallet's
/// answer, the reason is IN_FLIGHT.
#[tokio::test]
async fn correction_3_only_the_wallet_knows_that_its_consumer_failed() {
    let fixture = Fixture::with_separate_wallet(json!({})).await;
    fixture.open("broken", "100").await;
    fixture.break_account().await;
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "broken", "10").await;
    fixture
        .wait_for_status(uuid, "PENDING", Some("LISTENER_FAILED"))
        .await;
    let recorded: (Option<Uuid>, String) = sqlx::query_as("select uuid, error from wallet.failure")
        .fetch_one(&fixture.wallet)
        .await
        .unwrap();
    assert_eq!(recorded.0, Some(uuid));
    assert!(recorded.1.contains("booking refused"), "{}", recorded.1);
    assert_eq!(
        fixture
            .wallet_count("select count(*) from wallet.inbox")
            .await,
        0,
        "rolled back"
    );
    // With the wallet unavailable, the requests' side only knows that the payment is in flight.
    fixture.wallet.close().await;
    assert_eq!(fixture.get(uuid).await["reason"], "IN_FLIGHT");
}

/// `try_count` on the outbox row counts the failed attempts.
#[tokio::test]
async fn correction_4_try_count_on_the_outbox_row_counts_failed_attempts() {
    let fixture = Fixture::new(json!({ "publish": { "max_attempts": 5, "backoff": [0.2] } })).await;
    fixture.transport.unavailable.store(true, SeqCst);
    fixture.open("acc-1", "100").await;
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    eventually("two attempts failed", async || {
        fixture
            .count("select try_count::bigint from payments.outbox")
            .await
            >= 2
    })
    .await;
    fixture.transport.unavailable.store(false, SeqCst);
    fixture.wait_for_status(uuid, "SUCCEED", None).await;
    let failed = i64::from(fixture.transport.publish_calls.load(SeqCst) - 1);
    eventually("the message is published", async || {
        let published = "select count(*) from payments.outbox where status = 'PUBLISHED'";
        fixture.count(published).await == 1
    })
    .await;
    assert_eq!(
        fixture
            .count("select try_count::bigint from payments.outbox")
            .await,
        failed
    );
}
