//! The desk: questions of many tasks, answered together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use postrider::batcher::Batcher;
use postrider_testkit::eventually;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio_util::sync::CancellationToken;

use crate::support::database;

/// Each question is what to divide by; the answer is who answered.
fn desk(pool: &PgPool) -> Batcher<i32, i32> {
    Batcher::with_connection(pool.clone(), 10, |connection, questions| {
        Box::pin(async move {
            sqlx::query_scalar("select pg_backend_pid() + 0 / u from unnest($1::int[]) u")
                .bind(questions)
                .fetch_all(connection)
                .await
        })
    })
}

#[tokio::test]
async fn a_desk_keeps_its_connection_while_it_is_asked_and_then_gives_it_back() {
    let db = database().await;
    let given_back = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&given_back);
    let pool = PgPoolOptions::new()
        .max_connections(3)
        .after_release(move |_, _| {
            counter.fetch_add(1, Relaxed);
            Box::pin(async { Ok(true) })
        })
        .connect_lazy_with(db.connect_options());
    let desk = desk(&pool);
    for _ in 0..200 {
        desk.call(1).await.unwrap();
    }
    let times = given_back.load(Relaxed);
    assert!(times < 20, "given back {times} times in 200 questions");
    eventually("nobody asks, and it is given back", async || {
        pool.num_idle() == 1
    })
    .await;
}

#[tokio::test]
async fn a_desk_that_is_always_asked_leaves_the_only_connection_to_others_in_turn() {
    let db = database().await;
    let pool = db.pool_of(1);
    let (desk, stop) = (desk(&pool), CancellationToken::new());
    let asking = tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        loop {
            desk.call(1).await.unwrap();
        }
    }));
    for _ in 0..5 {
        let two: i32 = sqlx::query_scalar("select 2")
            .fetch_one(&pool)
            .await
            .unwrap();
        assert_eq!(two, 2);
    }
    stop.cancel();
    asking.await.unwrap();
}

#[tokio::test]
async fn a_question_that_fails_does_not_spoil_the_next_one() {
    let db = database().await;
    let desk = desk(&db.pool());
    let error = desk.call(0).await.unwrap_err();
    assert!(error.to_string().contains("division by zero"), "{error}");
    assert!(desk.call(1).await.is_ok());
}

#[tokio::test]
async fn a_kept_connection_that_broke_costs_one_answer() {
    let db = database().await;
    let desk = desk(&db.pool_of(3));
    let kept = desk.call(1).await.unwrap();
    sqlx::query("select pg_terminate_backend($1, 10000)")
        .bind(kept)
        .execute(&db.pool())
        .await
        .unwrap();
    eventually("another connection answers", async || {
        desk.call(1).await.is_ok_and(|other| other != kept)
    })
    .await;
}
