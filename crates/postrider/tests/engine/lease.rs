//! One owner at a time, by the database's clock, and nothing lost.

use std::collections::HashSet;
use std::time::Duration;

use postrider::Error;
use postrider::failure::{Category, Failure};
use postrider::lease::{
    Claim, Item, Kinds, Lease, Outcome, Queue, ScanCursor, Settlement, Suspect,
};
use postrider::outbox::OUTBOX;
use sqlx::{Executor, PgPool};

use crate::support::database;

const LEASE: Duration = Duration::from_secs(60);

fn queue() -> Queue {
    Queue::new(&OUTBOX).unwrap()
}

fn failure() -> Failure {
    Failure::with_category("BROKEN", Category::System, "it broke")
}

async fn fill(pool: &PgPool, count: i64) {
    sqlx::query("insert into postrider.outbox (topic, payload) select 't' || n % 2, to_json(n) from generate_series(1, $1) n")
        .bind(count)
        .execute(pool)
        .await
        .unwrap();
}

async fn claim(pool: &PgPool, limit: u32) -> Vec<(Lease, Item)> {
    queue()
        .claim(pool, &Claim::new("w", LEASE, limit))
        .await
        .unwrap()
}

async fn claim_one(pool: &PgPool) -> Lease {
    claim(pool, 1).await.pop().unwrap().0
}

/// Makes every lease expire.
async fn expire(pool: &PgPool) {
    pool.execute("update postrider.outbox set lease_until = now() - interval '1 second' where lease_until is not null")
        .await
        .unwrap();
}

/// Makes the lease of item 1 expire and gives the item to another worker.
async fn reclaim(pool: &PgPool) -> Lease {
    expire(pool).await;
    match queue().claim_suspect(pool, "v", LEASE, &[1]).await.unwrap() {
        Some(Suspect::Run(lease, _)) => lease,
        other => panic!("the expired item is claimable: {other:?}"),
    }
}

/// State, attempts, losses, and whether it is due.
async fn row(pool: &PgPool, id: i64) -> (String, i16, i16, bool) {
    sqlx::query_as(
        "select state::text, attempts, losses, due <= now() from postrider.outbox where id = $1",
    )
    .bind(id)
    .fetch_one(pool)
    .await
    .unwrap()
}

async fn count(pool: &PgPool) -> i64 {
    sqlx::query_scalar("select count(*) from postrider.outbox")
        .fetch_one(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn many_claimers_never_get_the_same_item() {
    let db = database().await;
    let pool = db.pool_of(8);
    fill(&pool, 2_000).await;
    let claimers = (0..8).map(|n| {
        let pool = pool.clone();
        async move {
            let mut ids = Vec::new();
            loop {
                let claimed = queue()
                    .claim(&pool, &Claim::new(format!("w{n}"), LEASE, 37))
                    .await
                    .unwrap();
                if claimed.is_empty() {
                    return ids;
                }
                ids.extend(claimed.into_iter().map(|(lease, _)| lease.id()));
            }
        }
    });
    let ids: Vec<i64> = futures_util::future::join_all(claimers).await.concat();
    assert_eq!(ids.len(), 2_000);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 2_000);
}

#[tokio::test]
async fn a_claim_takes_the_oldest_due_items() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 10).await;
    pool.execute("update postrider.outbox set due = now() - interval '1 hour' where id = 7")
        .await
        .unwrap();
    pool.execute("update postrider.outbox set due = now() + interval '1 hour' where id = 1")
        .await
        .unwrap();
    let ids: Vec<i64> = claim(&pool, 3)
        .await
        .iter()
        .map(|(lease, _)| lease.id())
        .collect();
    assert_eq!(ids, [7, 2, 3]);
}

#[tokio::test]
async fn a_claim_from_a_cursor_skips_earlier_items() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 10).await;
    let first = claim(&pool, 4).await;
    let mark = ScanCursor::at(&first.last().unwrap().1);
    queue()
        .settle(
            &pool,
            "w",
            first
                .into_iter()
                .map(|(lease, _)| Settlement::new(lease, Outcome::Release))
                .collect(),
        )
        .await
        .unwrap();
    let from_mark = Claim {
        from: mark,
        ..Claim::new("w", LEASE, 2)
    };
    let ids: Vec<i64> = queue()
        .claim(&pool, &from_mark)
        .await
        .unwrap()
        .iter()
        .map(|(lease, _)| lease.id())
        .collect();
    assert_eq!(ids, [4, 5], "the item at the cursor is included");
    let ids: Vec<i64> = claim(&pool, 2)
        .await
        .iter()
        .map(|(lease, _)| lease.id())
        .collect();
    assert_eq!(ids, [1, 2], "released items are found from the start");
}

#[tokio::test]
async fn a_claim_can_choose_kinds() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 10).await;
    let kinds = async |kinds| {
        let claim = Claim {
            kinds,
            ..Claim::new("w", LEASE, 2)
        };
        let claimed = queue().claim(&pool, &claim).await.unwrap();
        claimed
            .iter()
            .map(|(_, item)| item.kind.to_string())
            .collect::<HashSet<_>>()
    };
    assert_eq!(
        kinds(Kinds::Only(vec!["t1".into()])).await,
        HashSet::from(["t1".to_owned()])
    );
    assert_eq!(
        kinds(Kinds::Only(vec!["t1".into(), "x".into()])).await,
        HashSet::from(["t1".to_owned()])
    );
    assert_eq!(
        kinds(Kinds::Except(vec!["t1".into()])).await,
        HashSet::from(["t0".to_owned()])
    );
    assert_eq!(
        kinds(Kinds::Only(vec!["unknown".into()])).await,
        HashSet::new()
    );
}

#[tokio::test]
async fn done_items_leave_the_table_and_are_recorded() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 3).await;
    let batch = claim(&pool, 3)
        .await
        .into_iter()
        .map(|(lease, _)| Settlement::new(lease, Outcome::Done))
        .collect();
    let settled = queue().settle(&pool, "w", batch).await.unwrap();
    assert_eq!((settled.settled, settled.lost.len()), (3, 0));
    assert_eq!(count(&pool).await, 0);
    let (_, worker) = postrider::internal::attempts::completed(&pool, "postrider.outbox", 2)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(worker, "w");
}

async fn place(pool: &PgPool, id: i64) -> String {
    sqlx::query_scalar("select ctid::text from postrider.outbox where id = $1")
        .bind(id)
        .fetch_one(pool)
        .await
        .unwrap()
}

async fn vacuum(pool: &PgPool) {
    pool.execute("vacuum postrider.outbox").await.unwrap();
}

#[tokio::test]
async fn settling_follows_a_row_that_moved_since_its_claim() {
    let db = database().await;
    let pool = db.pool();
    // From the first slot of the first page on.
    vacuum(&pool).await;
    fill(&pool, 2).await;
    let mut claimed = claim(&pool, 2).await;
    let (second, _) = claimed.pop().unwrap();
    let (first, _) = claimed.pop().unwrap();
    let was = place(&pool, first.id()).await;
    let renew = async |lease: &Lease| {
        let mut connection = pool.acquire().await.unwrap();
        let lost = queue().renew(&mut connection, [lease], LEASE).await;
        assert_eq!(lost.unwrap(), []);
    };
    renew(&first).await;
    vacuum(&pool).await;
    renew(&second).await;
    assert_ne!(place(&pool, first.id()).await, was);
    assert_eq!(place(&pool, second.id()).await, was, "of the same claim");

    let second_id = second.id();
    for (lease, left) in [(first, vec![second_id]), (second, vec![])] {
        let batch = vec![Settlement::new(lease, Outcome::Done)];
        let settled = queue().settle(&pool, "w", batch).await.unwrap();
        assert_eq!((settled.settled, settled.lost.len()), (1, 0));
        let ids: Vec<i64> = sqlx::query_scalar("select id from postrider.outbox")
            .fetch_all(&pool)
            .await
            .unwrap();
        assert_eq!(ids, left);
    }
}

#[tokio::test]
async fn stale_lease_cannot_settle_an_item() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let mut stale = claim_one(&pool).await;
    let outcomes = [
        Outcome::Done,
        Outcome::Retry {
            after: LEASE,
            failure: failure(),
        },
        Outcome::Dead { failure: failure() },
        Outcome::Snooze { after: LEASE },
        Outcome::Release,
    ];
    // Each late completion meets a successor's lease, which becomes the next stale one.
    for (losses, outcome) in (1..).zip(outcomes) {
        let fresh = reclaim(&pool).await;
        let lost = queue()
            .renew(&mut pool.acquire().await.unwrap(), [&stale], LEASE)
            .await
            .unwrap();
        assert_eq!(lost, [stale.lost(&OUTBOX)]);
        let settled = queue()
            .settle(&pool, "w", vec![Settlement::new(stale, outcome)])
            .await
            .unwrap();
        assert_eq!(settled.lost, lost);
        assert_eq!(settled.settled, 0);
        assert_eq!(row(&pool, 1).await, ("leased".into(), 0, losses, true));
        stale = fresh;
    }
    let fresh = stale;
    let settled = queue()
        .settle(&pool, "v", vec![Settlement::new(fresh, Outcome::Done)])
        .await
        .unwrap();
    assert_eq!(settled.settled, 1);
}

#[tokio::test]
async fn writes_in_the_settling_transaction_roll_back_with_a_lost_lease() {
    let db = database().await;
    let pool = db.pool();
    pool.execute("create table effect (id bigint)")
        .await
        .unwrap();
    fill(&pool, 2).await;
    let kept = claim_one(&pool).await;
    let lost = claim_one(&pool).await;
    pool.execute("update postrider.outbox set fence = fence + 1 where id = 2")
        .await
        .unwrap();
    for lease in [kept, lost] {
        let mut tx = pool.begin().await.unwrap();
        sqlx::query("insert into effect values ($1)")
            .bind(lease.id())
            .execute(&mut *tx)
            .await
            .unwrap();
        match queue().settle_in(&mut tx, "w", lease, Outcome::Done).await {
            Ok(_) => tx.commit().await.unwrap(),
            Err(Error::LostLease(lost)) => assert_eq!(lost.id, 2),
            Err(other) => panic!("{other}"),
        }
    }
    let effects: Vec<i64> = sqlx::query_scalar("select id from effect")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(effects, [1]);
}

#[tokio::test]
async fn each_outcome_is_recorded_in_the_row() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 6).await;
    let outcomes = [
        Outcome::Retry {
            after: LEASE,
            failure: failure(),
        },
        Outcome::Retry {
            after: Duration::ZERO,
            failure: failure(),
        },
        Outcome::Snooze { after: LEASE },
        Outcome::Dead { failure: failure() },
        Outcome::Abandoned { failure: failure() },
        Outcome::Release,
    ];
    let batch = claim(&pool, 6)
        .await
        .into_iter()
        .zip(outcomes)
        .map(|((lease, _), outcome)| Settlement::new(lease, outcome))
        .collect();
    assert_eq!(queue().settle(&pool, "w", batch).await.unwrap().settled, 6);
    assert_eq!(row(&pool, 1).await, ("waiting".into(), 1, 0, false));
    assert_eq!(row(&pool, 2).await, ("waiting".into(), 1, 0, true));
    assert_eq!(
        row(&pool, 3).await,
        ("waiting".into(), 0, 0, false),
        "a snooze spends nothing"
    );
    assert_eq!(row(&pool, 4).await, ("dead".into(), 1, 0, true));
    assert_eq!(
        row(&pool, 5).await,
        ("dead".into(), 0, 0, true),
        "no attempt was made"
    );
    assert_eq!(
        row(&pool, 6).await,
        ("ready".into(), 0, 0, true),
        "a release spends nothing"
    );
    let attempts = postrider::internal::attempts::attempts(&pool, "postrider.outbox", 4)
        .await
        .unwrap();
    assert_eq!(attempts.len(), 1);
    assert_eq!(
        (
            attempts[0].attempt,
            attempts[0].outcome.as_str(),
            attempts[0].code.as_deref()
        ),
        (1, "dead", Some("BROKEN"))
    );
    let claimable: Vec<i64> = claim(&pool, 10)
        .await
        .iter()
        .map(|(lease, _)| lease.id())
        .collect();
    assert_eq!(
        HashSet::from_iter(claimable),
        HashSet::from([2, 6]),
        "dead items and those not due aren't claimed"
    );
}

#[tokio::test]
async fn a_renewed_lease_is_not_rescued() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 2).await;
    let renewed = claim_one(&pool).await;
    let _expired = claim_one(&pool).await;
    expire(&pool).await;
    let lost = queue()
        .renew(&mut pool.acquire().await.unwrap(), [&renewed], LEASE)
        .await
        .unwrap();
    assert!(lost.is_empty());
    let suspects = queue()
        .find_suspects(&pool, ScanCursor::START, 100, None)
        .await
        .unwrap();
    assert_eq!(suspects.ids, [2]);
}

#[tokio::test]
async fn an_item_with_losses_is_claimed_alone_and_dead_at_the_tenth() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 3).await;
    claim(&pool, 1).await;
    for loss in 1..=10 {
        expire(&pool).await;
        assert!(
            claim(&pool, 10)
                .await
                .iter()
                .all(|(lease, _)| lease.id() != 1),
            "never in a batch with others"
        );
        let suspects = queue()
            .find_suspects(&pool, ScanCursor::START, 100, None)
            .await
            .unwrap();
        let suspect = queue()
            .claim_suspect(&pool, "w", LEASE, &suspects.ids[..1])
            .await
            .unwrap();
        match suspect.unwrap() {
            Suspect::Run(_, item) => assert_eq!(item.losses, loss),
            Suspect::Exhausted(lease, item) => {
                assert_eq!((item.losses, loss), (10, 10));
                queue()
                    .settle(
                        &pool,
                        "w",
                        vec![Settlement::new(
                            lease,
                            Outcome::Abandoned { failure: failure() },
                        )],
                    )
                    .await
                    .unwrap();
                assert_eq!(row(&pool, 1).await, ("dead".into(), 0, 10, true));
                return;
            }
        }
    }
    panic!("a poison item must not loop for ever");
}

#[tokio::test]
async fn suspects_are_found_anywhere_in_the_table() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 25).await;
    pool.execute("update postrider.outbox set losses = 1 where id in (3, 24)")
        .await
        .unwrap();
    let first = queue()
        .find_suspects(&pool, ScanCursor::START, 10, None)
        .await
        .unwrap();
    assert_eq!(first.ids, [3]);
    let second = queue()
        .find_suspects(&pool, first.next.unwrap(), 10, None)
        .await
        .unwrap();
    assert!(second.ids.is_empty());
    let third = queue()
        .find_suspects(&pool, second.next.unwrap(), 10, None)
        .await
        .unwrap();
    assert_eq!((third.ids, third.next), (vec![24], None));
}

#[tokio::test]
async fn concurrent_claims_and_settlements_never_deadlock() {
    let db = database().await;
    let pool = db.pool_of(12);
    fill(&pool, 6_000).await;
    let workers = (0..4).map(|n| {
        let pool = pool.clone();
        tokio::spawn(async move {
            let worker = format!("w{n}");
            loop {
                let claimed = queue()
                    .claim(&pool, &Claim::new(&worker, LEASE, 50))
                    .await
                    .unwrap();
                if claimed.is_empty() && count(&pool).await == 0 {
                    return;
                }
                let batch = claimed
                    .into_iter()
                    .map(|(lease, item)| {
                        let again = item.attempts == 0 && item.id % 7 == 0;
                        let outcome = if again {
                            Outcome::Retry {
                                after: Duration::ZERO,
                                failure: failure(),
                            }
                        } else {
                            Outcome::Done
                        };
                        Settlement::new(lease, outcome)
                    })
                    .collect();
                let settled = queue().settle(&pool, &worker, batch).await.unwrap();
                assert!(settled.lost.is_empty());
            }
        })
    });
    for worker in workers {
        worker.await.unwrap();
    }
    let completed: i64 =
        sqlx::query_scalar("select sum(cardinality(ids))::bigint from postrider.completion")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(completed, 6_000, "each exactly once");
}

#[tokio::test]
async fn invalid_arguments_are_named() {
    let db = database().await;
    let pool = db.pool();
    for bad in [
        Claim::new("", LEASE, 1),
        Claim::new("w", Duration::ZERO, 1),
        Claim::new("w", Duration::MAX, 1),
    ] {
        assert!(matches!(
            queue().claim(&pool, &bad).await,
            Err(Error::Invalid { .. })
        ));
    }
    pool.close().await;
    let error = queue()
        .claim(&pool, &Claim::new("w", LEASE, 1))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Database(sqlx::Error::PoolClosed)));
}
