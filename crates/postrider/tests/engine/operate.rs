//! Operator actions on items: named, audited, and only where the state allows it.

use std::time::Duration;

use postrider::failure::Failure;
use postrider::lease::{Claim, Operator, Outcome, Queue, Settlement};
use postrider::outbox::{Message, OUTBOX, enqueue};
use sqlx::{Executor, PgPool};

use crate::support::database;

const LEASE: Duration = Duration::from_secs(60);

fn queue() -> Queue {
    Queue::new(&OUTBOX).unwrap()
}

fn operator() -> Operator {
    Operator::new("ada").with_reason("a good reason")
}

/// Items 1 and 2 are dead, 3 is ready, 4 leased.
async fn mixed(pool: &PgPool) -> Settlement {
    pool.execute(
        "insert into postrider.outbox (topic, payload) select 't', '{}' from generate_series(1, 2)",
    )
    .await
    .unwrap();
    let failure = Failure::new("NO_FUNDS", "account 17 has no funds");
    let dead = queue()
        .claim(pool, &Claim::new("w", LEASE, 2))
        .await
        .unwrap()
        .into_iter();
    let batch = dead
        .map(|(lease, _)| {
            Settlement::new(
                lease,
                Outcome::Dead {
                    failure: failure.clone(),
                },
            )
        })
        .collect();
    queue().settle(pool, "w", batch).await.unwrap();
    pool.execute(
        "insert into postrider.outbox (topic, payload) select 't', '{}' from generate_series(1, 2)",
    )
    .await
    .unwrap();
    pool.execute("update postrider.outbox set due = due - interval '1 hour' where id = 4")
        .await
        .unwrap();
    let (lease, _) = queue()
        .claim(pool, &Claim::new("w", LEASE, 1))
        .await
        .unwrap()
        .pop()
        .unwrap();
    assert_eq!(lease.id(), 4);
    Settlement::new(lease, Outcome::Done)
}

async fn states(pool: &PgPool) -> Vec<(i64, String)> {
    sqlx::query_as("select id, state::text from postrider.outbox order by id")
        .fetch_all(pool)
        .await
        .unwrap()
}

async fn audited(pool: &PgPool) -> Vec<(String, String, Vec<i64>, Option<String>)> {
    sqlx::query_as("select actor, action, items, reason from postrider.audit order by id")
        .fetch_all(pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_redrive_revives_only_dead_items_with_fresh_attempts() {
    let db = database().await;
    let pool = db.pool();
    mixed(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    let redriven = queue()
        .redrive(&mut tx, &operator(), &[1, 2, 3, 4, 99])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(redriven.ids, [1, 2]);
    let (attempts, finished): (i16, bool) = sqlx::query_as(
        "select attempts, finished_at is not null from postrider.outbox where id = 1",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!((attempts, finished), (0, false));
    let expected = (
        "ada".into(),
        "redrive".into(),
        vec![1, 2],
        Some("a good reason".into()),
    );
    assert_eq!(audited(&pool).await, [expected]);
    let history = postrider::internal::attempts::attempts(&pool, "postrider.outbox", 1)
        .await
        .unwrap();
    assert_eq!(history.len(), 1, "the attempt log keeps earlier attempts");
}

#[tokio::test]
async fn an_item_can_be_cancelled_while_a_worker_runs_it() {
    let db = database().await;
    let pool = db.pool();
    let late = mixed(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    let cancelled = queue()
        .cancel(&mut tx, &operator(), &[1, 3, 4])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(cancelled.ids, [3, 4], "finished items aren't changed");
    let settled = queue().settle(&pool, "w", vec![late]).await.unwrap();
    assert_eq!(settled.lost.len(), 1);
    let (state, code): (String, String) =
        sqlx::query_as("select state::text, error_code from postrider.outbox where id = 4")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!((state.as_str(), code.as_str()), ("dead", "CANCELLED"));
}

#[tokio::test]
async fn a_parked_item_is_not_claimed_until_it_is_unparked() {
    let db = database().await;
    let pool = db.pool();
    mixed(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(
        queue()
            .park(&mut tx, &operator(), &[1, 3, 4])
            .await
            .unwrap(),
        [3],
        "neither dead nor leased ones"
    );
    tx.commit().await.unwrap();
    let claim = Claim::new("w", LEASE, 10);
    assert!(queue().claim(&pool, &claim).await.unwrap().is_empty());
    let why: Option<String> =
        sqlx::query_scalar("select parked from postrider.outbox where id = 3")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(why.as_deref(), Some("a good reason"));
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(
        queue().unpark(&mut tx, &operator(), &[3]).await.unwrap(),
        [3]
    );
    tx.commit().await.unwrap();
    assert_eq!(queue().claim(&pool, &claim).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_item_that_waits_for_its_ordering_key_cannot_be_unparked() {
    let db = database().await;
    let pool = db.pool();
    let mut connection = pool.acquire().await.unwrap();
    for n in 0..2 {
        enqueue(
            &mut connection,
            &Message::new("t", &n).unwrap().ordering_key("k").unwrap(),
        )
        .await
        .unwrap();
    }
    assert!(
        queue()
            .unpark(&mut connection, &operator(), &[1, 2])
            .await
            .unwrap()
            .is_empty()
    );
    let cancelled = queue()
        .cancel(&mut connection, &operator(), &[1])
        .await
        .unwrap();
    assert_eq!(cancelled.ids, [1]);
    drop(connection);
    let next = queue()
        .claim(&pool, &Claim::new("w", LEASE, 10))
        .await
        .unwrap();
    assert_eq!(next.len(), 1, "cancelling the head promotes the next one");
}

#[tokio::test]
async fn a_redriven_item_queues_up_with_its_key() {
    let db = database().await;
    let pool = db.pool();
    let mut connection = pool.acquire().await.unwrap();
    for n in 0..3 {
        enqueue(
            &mut connection,
            &Message::new("t", &n).unwrap().ordering_key("k").unwrap(),
        )
        .await
        .unwrap();
    }
    queue()
        .cancel(&mut connection, &operator(), &[1])
        .await
        .unwrap();
    let claim = Claim::new("w", LEASE, 10);
    let (second, _) = queue().claim(&pool, &claim).await.unwrap().pop().unwrap();
    queue()
        .redrive(&mut connection, &operator(), &[1])
        .await
        .unwrap();
    assert!(
        queue().claim(&pool, &claim).await.unwrap().is_empty(),
        "not while another item of its key is running"
    );
    queue()
        .settle(&pool, "w", vec![Settlement::new(second, Outcome::Done)])
        .await
        .unwrap();
    let (next, _) = queue().claim(&pool, &claim).await.unwrap().pop().unwrap();
    assert_eq!(next.id(), 1);
}

#[tokio::test]
async fn an_archived_item_is_kept_completely_outside_the_table() {
    let db = database().await;
    let pool = db.pool();
    mixed(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    assert_eq!(
        queue()
            .archive(&mut tx, &operator(), &[1, 3])
            .await
            .unwrap(),
        [1]
    );
    tx.commit().await.unwrap();
    assert_eq!(states(&pool).await.len(), 3);
    let item: serde_json::Value =
        sqlx::query_scalar("select item from postrider.archive where item_id = 1")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(item["error_code"], "NO_FUNDS");
}

#[tokio::test]
async fn actions_need_a_name_and_only_changes_are_audited() {
    let db = database().await;
    let pool = db.pool();
    mixed(&pool).await;
    let mut tx = pool.begin().await.unwrap();
    assert!(
        queue()
            .redrive(&mut tx, &Operator::new(" "), &[1])
            .await
            .is_err()
    );
    tx.rollback().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    queue().redrive(&mut tx, &operator(), &[3]).await.unwrap();
    tx.commit().await.unwrap();
    assert!(audited(&pool).await.is_empty());
    assert_eq!(states(&pool).await[0].1, "dead");
}
