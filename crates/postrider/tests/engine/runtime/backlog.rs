//! A backlog is processed as fast as the database returns it, and nothing twice.

use tokio::sync::Semaphore;

use super::*;
use crate::support::database;

/// A claim (all its items have one fence) of the second half only, which nobody but the second claimer makes.
const SECOND: &str = "
    select exists (
        select from postrider.outbox where state = 'leased'
        group by fence having count(*) >= 20 and every(hashint8(id) & 1 = 1))";

fn small_batches() -> WorkerOptions {
    WorkerOptions {
        batch: 50,
        prefetch: 1_000,
        ..options()
    }
}

/// Interleaved with items of a kind that nobody handles: one kind has all the odd ids.
async fn fill_in_turn(pool: &PgPool, count: i64) {
    let kind = |n| if n % 2 == 0 { "t" } else { "nobody" };
    let messages: Vec<Message> = (0..count)
        .map(|n| Message::new(kind(n), &n).unwrap())
        .collect();
    enqueue_many(&mut pool.acquire().await.unwrap(), &messages)
        .await
        .unwrap();
}

#[tokio::test]
async fn two_claims_run_concurrently_under_a_backlog() {
    let db = database().await;
    let pool = db.pool();
    fill_in_turn(&pool, 40_000).await;
    // A few at a time, so that there is always something left to claim.
    let permits = Arc::new(Semaphore::new(1_000));
    let some = Arc::clone(&permits);
    let handler = Handler::new(move |_| {
        let permits = Arc::clone(&some);
        async move {
            permits.acquire().await?.forget();
            Ok(Verdict::Done)
        }
    });
    let running = Running::start(worker(&pool).options(small_batches()).handle("t", handler));
    eventually("the second claimer has claimed", async || {
        permits.add_permits(20);
        let claimed: bool = sqlx::query_scalar(SECOND).fetch_one(&pool).await.unwrap();
        claimed.then_some(()).ok_or("not yet")
    })
    .await;
    permits.close();
    running.stop().await;
}

#[tokio::test]
async fn each_item_of_a_backlog_and_after_it_is_handled_once() {
    let db = database().await;
    let pool = db.pool();
    let handled = Arc::default();
    let running = Running::start(
        worker(&pool)
            .options(small_batches())
            .handle("t", recording(&handled)),
    );
    for count in [5_000, 10, 1_000] {
        fill(&pool, count).await;
        empty(&pool).await;
        let mut handled = std::mem::take(&mut *handled.lock().unwrap());
        handled.sort_unstable();
        assert_eq!(handled, (0..count).collect::<Vec<i64>>());
    }
    running.stop().await;
}

#[tokio::test]
async fn an_exhausted_handler_pool_does_not_block_claims_rescues_and_settlements() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 500).await;
    sqlx::query("update postrider.outbox set state = 'leased', lease_until = now(), fence = 1, lease_owner = 'x' where id <= 3")
        .execute(&pool)
        .await
        .unwrap();
    let small = db.pool_of(1);
    let used_up = small.acquire().await.unwrap();
    let handled = Arc::default();
    let worker = worker(&small).handle("t", recording(&handled));
    let running = Running::start(worker);
    empty(&pool).await;
    running.stop().await;
    drop(used_up);
    assert_eq!(handled.lock().unwrap().len(), 500);
}
