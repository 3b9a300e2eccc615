//! Everything at once: duplicates, kills of every part, a broker that comes and goes, reconciliation beside it.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use postrider_testkit::within;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::{House, payment};

/// How many payments; `POSTRIDER_TEST_PAYMENTS` makes it longer.
const PAYMENTS: usize = 400;

const ACCOUNTS: usize = 50;

fn payments() -> usize {
    std::env::var("POSTRIDER_TEST_PAYMENTS").map_or(PAYMENTS, |n| n.parse().unwrap())
}

/// Pays from all accounts while parts are killed and the broker goes away for a moment.
async fn rage(house: &House, count: usize) {
    house.transport.doubles.store(true, SeqCst);
    for account in 0..ACCOUNTS {
        // Enough for most of what is asked of it, not for all.
        house.open(&format!("acc-{account}"), "60").await;
    }
    let paying = async {
        let uuids: Vec<Uuid> = (0..count).map(|_| Uuid::now_v7()).collect();
        for (n, uuids) in uuids.chunks(8).enumerate() {
            let posts = uuids.iter().enumerate().map(|(m, uuid)| async move {
                let account = format!("acc-{}", (n * 8 + m) % ACCOUNTS);
                let body = payment(*uuid, &account, &format!("{}.25", (n + m) % 17 + 1));
                // Clients repeat themselves, too.
                assert_eq!(house.post(body.clone()).await.0, 202);
                assert_eq!(house.post(body).await.0, 200);
            });
            futures_util::future::join_all(posts).await;
        }
    };
    let killing = async {
        for round in 0..6 {
            let (publisher, listener) = (CancellationToken::new(), CancellationToken::new());
            house.publish(&publisher);
            house.listen(&listener);
            house.listen(&listener);
            tokio::time::sleep(Duration::from_millis(250 + 70 * round)).await;
            house.transport.away.store(round == 3, SeqCst);
            publisher.cancel();
            tokio::time::sleep(Duration::from_millis(60)).await;
            listener.cancel();
        }
        house.transport.away.store(false, SeqCst);
        house.work();
    };
    tokio::join!(paying, killing);
}

const PENDING: &str = "select count(*) from payments.request where status = 'PENDING'";

#[tokio::test]
async fn assured_every_payment_ends_whatever_is_killed_or_comes_twice() {
    let house = House::new(json!({ "delivery": "assured" })).await;
    let count = payments();
    rage(&house, count).await;
    within(
        Duration::from_secs(300),
        "every payment has ended",
        async || match house.count(PENDING).await {
            0 => Ok(()),
            n => Err(n),
        },
    )
    .await;
    assert_eq!(
        house.count("select count(*) from payments.request").await,
        i64::try_from(count).unwrap()
    );
    house.audit().await;
}

#[tokio::test]
async fn chance_what_stays_pending_says_truly_why_and_reconciliation_settles_it() {
    let house = House::new(json!({ "publish": { "max_attempts": 2 } })).await;
    let count = payments();
    let reconciling = CancellationToken::new();
    let beside = async {
        while !reconciling.is_cancelled() {
            // Some are settled while the storm rages, some are left for the end.
            tokio::time::sleep(Duration::from_millis(700)).await;
            tokio::join!(house.reconcile(), house.reconcile());
        }
    };
    tokio::join!(
        async {
            rage(&house, count / 2).await;
            reconciling.cancel();
        },
        beside
    );
    for n in 0..count / 2 {
        let body = payment(Uuid::now_v7(), &format!("acc-{}", n % ACCOUNTS), "0.01");
        assert_eq!(house.post(body).await.0, 202);
    }
    within(
        Duration::from_secs(300),
        "nothing moves any more",
        async || {
            let outbox = "select count(*) from payments.outbox where finished_at is null";
            let deliveries = "select count(*) from postrider.delivery where finished_at is null";
            match house.count(outbox).await + house.count(deliveries).await {
                0 => Ok(()),
                n => Err(n),
            }
        },
    )
    .await;
    // The last call backs end, one way or the other.
    within(
        Duration::from_secs(60),
        "no reason is IN_FLIGHT",
        async || {
            let pending: Vec<Uuid> =
                sqlx::query_scalar("select uuid from payments.request where status = 'PENDING'")
                    .fetch_all(&house.pool)
                    .await
                    .unwrap();
            for uuid in pending {
                let view = house.get(uuid).await;
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
    .fetch_all(&house.pool)
    .await
    .unwrap();
    for (uuid, exhausted, handled) in pending {
        let expected = match (handled, exhausted) {
            (true, _) => "CALLBACK_FAILED",
            (false, true) => "OUTBOX_EXHAUSTED",
            (false, false) => "nothing that happened here",
        };
        assert_eq!(house.get(uuid).await["reason"], expected, "{uuid}");
    }
    tokio::join!(house.reconcile(), house.reconcile());
    assert_eq!(house.count(PENDING).await, 0);
    house.audit().await;
}
