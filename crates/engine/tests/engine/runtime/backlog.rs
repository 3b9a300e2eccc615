//! A backlog is worked off as fast as the database gives it out, and by nobody twice.

use tokio::sync::Semaphore;

use super::*;
use crate::support::database;

/// Sessions of this database that have claimed from the outbox.
const CLAIMERS: &str = "
    select count(*) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
      and query like 'update postrider.outbox t set state%skip locked%'";

fn small_batches() -> WorkerOptions {
    WorkerOptions {
        batch: 50,
        prefetch: 1_000,
        ..options()
    }
}

#[tokio::test]
async fn two_claims_are_under_way_where_much_waits() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 20_000).await;
    // Some at a time, so that there is always something left to claim.
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
    eventually("two sessions claim", async || {
        let claimers: i64 = sqlx::query_scalar(CLAIMERS).fetch_one(&pool).await.unwrap();
        permits.add_permits(100);
        (claimers == 2).then_some(()).ok_or(claimers)
    })
    .await;
    permits.close();
    running.stop().await;
}

#[tokio::test]
async fn each_item_of_a_backlog_is_handled_once_and_so_is_what_comes_after_it() {
    let db = database().await;
    let pool = db.pool();
    let handled = Arc::default();
    let running = Running::start(
        worker(&pool)
            .options(small_batches())
            .handle("t", noting(&handled)),
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
async fn handlers_that_use_up_the_pool_keep_nobody_from_claiming_rescuing_and_settling() {
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
    let worker = worker(&small).handle("t", noting(&handled));
    let running = Running::start(worker);
    empty(&pool).await;
    running.stop().await;
    drop(used_up);
    assert_eq!(handled.lock().unwrap().len(), 500);
}
