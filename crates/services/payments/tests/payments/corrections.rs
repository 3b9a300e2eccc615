//! Where the pattern as written can't be kept: one test for each correction.

use std::sync::atomic::Ordering::SeqCst;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{House, eventually};
use postrider_testkit::crash;

/// "Never redelivered" holds for exceptions. A crash before the acknowledgement is a redelivery all the same, and the
/// inbox makes it once.
#[tokio::test]
async fn correction_1_a_crash_before_the_acknowledgement_is_a_redelivery_and_the_inbox_makes_it_once()
 {
    // With a database of its own the wallet commits before it acknowledges.
    let house = House::apart(json!({})).await;
    house.open("acc-1", "100").await;
    let trap = crash::at("subscriber.before_batch_ack").error();
    let crashed = CancellationToken::new();
    house.publish(&CancellationToken::new());
    house.listen(&crashed);
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "30").await;
    eventually("it has deducted and not acknowledged", async || {
        trap.fired() == 1
    })
    .await;
    crashed.cancel();
    assert_eq!(
        house
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await,
        1
    );
    house.listen(&CancellationToken::new());
    eventually("the message came again and was acknowledged", async || {
        house
            .count("select count(*) from postrider.delivery where finished_at is null")
            .await
            == 0
    })
    .await;
    assert_eq!(house.balance("acc-1").await, "70.00");
    assert_eq!(
        house
            .wallet_count("select count(*) from wallet.inbox")
            .await,
        1
    );
    house.audit().await;
}

/// A wallet with a database of its own needs its own engine schema, inbox, outbox and publisher: no transaction spans
/// both.
#[tokio::test]
async fn correction_2_a_wallet_with_its_own_database_has_everything_of_its_own() {
    let house = House::apart(json!({ "delivery": "assured" })).await;
    house.open("acc-1", "100").await;
    house.work();
    let uuids: Vec<Uuid> = (0..10).map(|_| Uuid::now_v7()).collect();
    for uuid in &uuids {
        house.pay(*uuid, "acc-1", "5").await;
    }
    for uuid in &uuids {
        house.stands(*uuid, "SUCCEED", None).await;
    }
    assert_eq!(house.balance("acc-1").await, "50.00");
    // The wallet's tables in the orchestrator's database were not touched, and the orchestrator's do not exist there.
    assert_eq!(house.count("select count(*) from wallet.inbox").await, 0);
    assert_eq!(house.count("select count(*) from wallet.account").await, 0);
    assert_eq!(
        house
            .wallet_count("select count(*) from pg_namespace where nspname = 'payments'")
            .await,
        0
    );
    eventually("the wallet's own outbox is empty", async || {
        house
            .wallet_count("select count(*) from wallet.outbox")
            .await
            == 0
    })
    .await;
    let by_worker = "select count(*) from postrider.completion where work_table = 'wallet.outbox'";
    assert!(
        house.wallet_count(by_worker).await > 0,
        "delivered by a worker of its own, recorded in its own engine schema"
    );
    house.audit().await;
}

/// The orchestrator can't know that the listener failed. The wallet writes it down after the rollback; until it is asked,
/// the reason is IN_FLIGHT.
#[tokio::test]
async fn correction_3_a_swallowed_failure_is_known_to_the_wallet_alone_until_it_is_asked() {
    let house = House::apart(json!({})).await;
    house.open("broken", "100").await;
    house.break_account().await;
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "broken", "10").await;
    house.stands(uuid, "PENDING", Some("LISTENER_FAILED")).await;
    let written: (Option<Uuid>, String) = sqlx::query_as("select uuid, error from wallet.failure")
        .fetch_one(&house.wallet)
        .await
        .unwrap();
    assert_eq!(written.0, Some(uuid));
    assert!(written.1.contains("no more ink"), "{}", written.1);
    assert_eq!(
        house
            .wallet_count("select count(*) from wallet.inbox")
            .await,
        0,
        "rolled back"
    );
    // Nobody can ask a wallet that is away: what the orchestrator itself knows is that it is under way.
    house.wallet.close().await;
    assert_eq!(house.get(uuid).await["reason"], "IN_FLIGHT");
}

/// `try_count` stands on the outbox row under that name, and counts the tries that failed.
#[tokio::test]
async fn correction_4_try_count_is_kept_on_the_outbox_row_as_such() {
    let house = House::new(json!({ "publish": { "max_attempts": 5, "backoff": [0.2] } })).await;
    house.transport.away.store(true, SeqCst);
    house.open("acc-1", "100").await;
    house.work();
    let uuid = Uuid::now_v7();
    house.pay(uuid, "acc-1", "10").await;
    eventually("two tries failed", async || {
        house
            .count("select try_count::bigint from payments.outbox")
            .await
            >= 2
    })
    .await;
    house.transport.away.store(false, SeqCst);
    house.stands(uuid, "SUCCEED", None).await;
    let failed = i64::from(house.transport.tries.load(SeqCst) - 1);
    eventually("the row says how many tries failed", async || {
        let published = "select count(*) from payments.outbox where status = 'PUBLISHED'";
        house.count(published).await == 1
    })
    .await;
    assert_eq!(
        house
            .count("select try_count::bigint from payments.outbox")
            .await,
        failed
    );
}
