//! Fault storm: duplicates, kills of every task, an unavailable broker and concurrent reconciliation.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use postrider_testkit::within;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{Fixture, payment};

/// Default number of payments; `POSTRIDER_TEST_PAYMENTS` overrides it.
const PAYMENTS: usize = 400;

const ACCOUNTS: usize = 50;

fn payments() -> usize {
    std::env::var("POSTRIDER_TEST_PAYMENTS").map_or(PAYMENTS, |n| n.parse().unwrap())
}

/// Pays from all accounts while tasks are killed and the broker is unavailable for a moment.
async fn run_storm(fixture: &Fixture, count: usize) {
    fixture.transport.duplicates.store(true, SeqCst);
    for account in 0..ACCOUNTS {
        // Enough for most of its payments, not for all.
        fixture.open(&format!("acc-{account}"), "60").await;
    }
    let paying = async {
        let uuids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
        for (n, uuids) in uuids.chunks(8).enumerate() {
            let posts = uuids.iter().enumerate().map(|(m, uuid)| async move {
                let account = format!("acc-{}", (n * 8 + m) % ACCOUNTS);
                let body = payment(*uuid, &account, &format!("{}.25", (n + m) % 17 + 1));
                // Clients repeat requests too.
                assert_eq!(fixture.post(body.clone()).await.0, 202);
                assert_eq!(fixture.post(body).await.0, 200);
            });
            futures_util::future::join_all(posts).await;
        }
    };
    let killing = async {
        for round in 0..6 {
            let (publisher, listener) = (CancellationToken::new(), CancellationToken::new());
            fixture.start_publisher(&publisher);
            fixture.start_wallet(&listener);
            fixture.start_wallet(&listener);
            tokio::time::sleep(Duration::from_millis(250 + 70 * round)).await;
            fixture.transport.unavailable.store(round == 3, SeqCst);
            publisher.cancel();
            tokio::time::sleep(Duration::from_millis(60)).await;
            listener.cancel();
        }
        fixture.transport.unavailable.store(false, SeqCst);
        fixture.start_workers();
    };
    tokio::join!(paying, killing);
}

const PENDING: &str = "select count(*) from payments.request where status = 'PENDING'";

#[tokio::test]
async fn assured_every_payment_settles_despite_kills_and_duplicates() {
    let fixture = Fixture::new(json!({ "delivery": "assured" })).await;
    let count = payments();
    run_storm(&fixture, count).await;
    within(
        Duration::from_secs(300),
        "every payment is settled",
        async || match fixture.count(PENDING).await {
            0 => Ok(()),
            n => Err(n),
        },
    )
    .await;
    assert_eq!(
        fixture.count("select count(*) from payments.request").await,
        i64::try_from(count).unwrap()
    );
    fixture.audit().await;
}

#[tokio::test]
async fn chance_pending_payments_show_the_true_reason_and_are_reconciled() {
    let fixture = Fixture::new(json!({ "publish": { "max_attempts": 2 } })).await;
    let count = payments();
    let reconciling = CancellationToken::new();
    let reconciliation = async {
        while !reconciling.is_cancelled() {
            // Some are settled during the storm, some are left for the end.
            tokio::time::sleep(Duration::from_millis(700)).await;
            tokio::join!(fixture.reconcile(), fixture.reconcile());
        }
    };
    tokio::join!(
        async {
            run_storm(&fixture, count / 2).await;
            reconciling.cancel();
        },
        reconciliation
    );
    for n in 0..count / 2 {
        let body = payment(Uuid::now_v7(), &format!("acc-{}", n % ACCOUNTS), "0.01");
        assert_eq!(fixture.post(body).await.0, 202);
    }
    within(
        Duration::from_secs(300),
        "nothing is in flight",
        async || {
            let outbox = "select count(*) from payments.outbox where finished_at is null";
            let deliveries = "select count(*) from postrider.delivery where finished_at is null";
            match fixture.count(outbox).await + fixture.count(deliveries).await {
                0 => Ok(()),
                n => Err(n),
            }
        },
    )
    .await;
    // The last callbacks succeed or fail.
    within(
        Duration::from_secs(60),
        "no reason is IN_FLIGHT",
        async || {
            let pending: Vec<Uuid> =
                sqlx::query_scalar("select uuid from payments.request where status = 'PENDING'")
                    .fetch_all(&fixture.pool)
                    .await
                    .unwrap();
            for uuid in pending {
                let view = fixture.get(uuid).await;
                if view["status"] == "PENDING" && view["reason"] == "IN_FLIGHT" {
                    return Err(view);
                }
            }
            Ok(())
        },
    )
    .await;
    let pending: Vec<(Uuid, bool, bool)> = sqlx::query_as(
        "select r.uuid, o.status = 'EXHAUSTED', i.uuid is not null from payments.request r
         join payments.outbox o using (uuid) left join wallet.inbox i using (uuid) where r.status = 'PENDING'",
    )
    .fetch_all(&fixture.pool)
    .await
    .unwrap();
    for (uuid, exhausted, handled) in pending {
        let expected = match (handled, exhausted) {
            (true, _) => "CALLBACK_FAILED",
            (false, true) => "OUTBOX_EXHAUSTED",
            (false, false) => "not a reason in this test",
        };
        assert_eq!(fixture.get(uuid).await["reason"], expected, "{uuid}");
    }
    tokio::join!(fixture.reconcile(), fixture.reconcile());
    assert_eq!(fixture.count(PENDING).await, 0);
    fixture.audit().await;
}
