//! What runs by itself: the scheduled reconciliation, and the cleaning that hides nothing.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use postrider::lease::{Operator, Queue};
use postrider_payments::{OUTBOX, reconcile, requests::cleaning, wallet::Wallet};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{House, eventually};

#[tokio::test]
async fn a_scheduled_reconciliation_settles_what_is_stuck_without_being_asked() {
    let house = House::new(json!({})).await;
    house.open("acc-1", "100").await;
    let stop = CancellationToken::new();
    let wallet = Wallet::new(house.wallet.clone(), Duration::from_secs(1));
    let (every, after) = (Duration::from_millis(100), Duration::ZERO);
    let schedule = reconcile::run(house.pool.clone(), wallet, every, after, stop.clone());
    let scheduled = tokio::spawn(schedule);
    for _ in 0..2 {
        let uuid = Uuid::now_v7();
        house.pay(uuid, "acc-1", "10").await;
        house.stands(uuid, "FAILED", Some("IN_FLIGHT")).await;
    }
    let by =
        "select count(*) from postrider.audit where actor = 'scheduler' and action = 'reconcile'";
    assert_eq!(house.count(by).await, 2);
    stop.cancel();
    scheduled.await.unwrap().unwrap();
}

#[tokio::test]
async fn cleaning_lets_go_what_was_published_and_settled_and_nothing_else() {
    let house = House::new(json!({})).await;
    house.open("acc-1", "100").await;
    house.work();
    let [settled, exhausted] = [(); 2].map(|()| Uuid::now_v7());
    house.pay(settled, "acc-1", "10").await;
    house.stands(settled, "SUCCEED", None).await;
    eventually("it is published", async || {
        let published = "select count(*) from payments.outbox where status = 'PUBLISHED'";
        house.count(published).await == 1
    })
    .await;
    house.transport.away.store(true, SeqCst);
    house.pay(exhausted, "acc-1", "10").await;
    house
        .stands(exhausted, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;
    let clean = async |retention| {
        cleaning::clean_once(house.pool.clone(), retention)
            .await
            .unwrap();
        house.count("select count(*) from payments.outbox").await
    };
    assert_eq!(clean(Duration::from_secs(3600)).await, 2, "too young");
    assert_eq!(clean(Duration::ZERO).await, 1);
    assert_eq!(house.get(settled).await["status"], "SUCCEED");
    assert_eq!(house.get(exhausted).await["reason"], "OUTBOX_EXHAUSTED");
}

#[tokio::test]
async fn a_payment_whose_dead_letter_was_archived_still_says_why() {
    let house = House::new(json!({})).await;
    house.transport.away.store(true, SeqCst);
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    house
        .stands(uuid, "PENDING", Some("OUTBOX_EXHAUSTED"))
        .await;
    let mut connection = house.pool.acquire().await.unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    let ids: Vec<i64> = sqlx::query_scalar("select id from payments.outbox")
        .fetch_all(&house.pool)
        .await
        .unwrap();
    queue
        .archive(&mut connection, &Operator::new("somebody"), &ids)
        .await
        .unwrap();
    assert_eq!(house.count("select count(*) from payments.outbox").await, 0);
    assert_eq!(house.get(uuid).await["reason"], "OUTBOX_EXHAUSTED");
    let report = house.reconcile().await;
    assert_eq!(report["requests"][0]["why"], "OUTBOX_EXHAUSTED");
}
