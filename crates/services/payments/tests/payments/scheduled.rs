//! Scheduled tasks: reconciliation and cleaning.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use postrider::lease::{Operator, Queue};
use postrider_payments::{OUTBOX, reconcile, requests::cleaning, wallet::Wallet};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{Fixture, eventually};

#[tokio::test]
async fn a_scheduled_reconciliation_settles_stuck_payments() {
    let fixture = Fixture::new(json!({})).await;
    fixture.open("acc-1", "100").await;
    let stop = CancellationToken::new();
    let wallet = Wallet::new(fixture.wallet.clone(), Duration::from_secs(1));
    let (every, after) = (Duration::from_millis(100), Duration::ZERO);
    let schedule = reconcile::run(fixture.pool.clone(), wallet, every, after, stop.clone());
    let scheduled = tokio::spawn(schedule);
    for _ in 0..2 {
        let uuid = Uuid::now_v7();
        fixture.pay(uuid, "acc-1", "10").await;
        fixture
            .wait_for_status(uuid, "FAILED", Some("IN_FLIGHT"))
            .await;
    }
    let by =
        "select count(*) from postrider.audit where actor = 'scheduler' and action = 'reconcile'";
    assert_eq!(fixture.count(by).await, 2);
    stop.cancel();
    scheduled.await.unwrap().unwrap();
}

#[tokio::test]
async fn cleaning_deletes_only_published_rows_of_settled_payments() {
    let fixture = Fixture::new(json!({})).await;
    fixture.open("acc-1", "100").await;
    fixture.start_workers();
    let [settled, exhausted] = [(); 2].map(|()| Uuid::now_v7());
    fixture.pay(settled, "acc-1", "10").await;
    fixture.wait_for_status(settled, "SUCCEED", None).await;
    eventually("it is published", async || {
        let published = "select count(*) from payments.outbox where status = 'PUBLISHED'";
        fixture.count(published).await == 1
    })
    .await;
    fixture.transport.unavailable.store(true, SeqCst);
    fixture.pay(exhausted, "acc-1", "10").await;
    fixture
        .wait_for_status(exhausted, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;
    let clean = async |retention| {
        cleaning::clean_once(fixture.pool.clone(), retention)
            .await
            .unwrap();
        fixture.count("select count(*) from payments.outbox").await
    };
    assert_eq!(clean(Duration::from_secs(3600)).await, 2, "too young");
    assert_eq!(clean(Duration::ZERO).await, 1);
    assert_eq!(fixture.get(settled).await["status"], "SUCCEED");
    assert_eq!(fixture.get(exhausted).await["reason"], "OUTBOX_EXHAUSTED");
}

#[tokio::test]
async fn a_payment_whose_dead_letter_was_archived_still_shows_why() {
    let fixture = Fixture::new(json!({})).await;
    fixture.transport.unavailable.store(true, SeqCst);
    fixture.start_workers();
    let uuid = Uuid::now_v7();
    fixture.pay(uuid, "acc-1", "10").await;
    fixture
        .wait_for_status(uuid, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;
    let mut connection = fixture.pool.acquire().await.unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    let ids: Vec<i64> = sqlx::query_scalar("select id from payments.outbox")
        .fetch_all(&fixture.pool)
        .await
        .unwrap();
    queue
        .archive(&mut connection, &Operator::new("somebody"), &ids)
        .await
        .unwrap();
    assert_eq!(
        fixture.count("select count(*) from payments.outbox").await,
        0
    );
    assert_eq!(fixture.get(uuid).await["reason"], "OUTBOX_EXHAUSTED");
    let report = fixture.reconcile().await;
    assert_eq!(report["requests"][0]["why"], "OUTBOX_EXHAUSTED");
}
