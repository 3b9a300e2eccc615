//! Group commit: calls of many tasks share a round trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use postrider::Error;
use postrider::batcher::{Batcher, BatcherOptions};
use postrider_testkit::{Proxy, eventually};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio_util::sync::CancellationToken;

use crate::support::database;

const OPTIONS: BatcherOptions = BatcherOptions {
    max_batch: 10,
    ..BatcherOptions::new("division")
};

/// Each request is a divisor; the answer is the backend that divided.
fn divider(pool: &PgPool, options: BatcherOptions) -> Batcher<i32, i32> {
    Batcher::with_connection(pool.clone(), options, |connection, divisors: &[i32]| {
        Box::pin(async move {
            let divide = "select pg_backend_pid() + 0 / u from unnest($1::int[]) u";
            Ok(sqlx::query_scalar(divide)
                .bind(divisors)
                .fetch_all(connection)
                .await?)
        })
    })
}

#[tokio::test]
async fn a_busy_batcher_keeps_its_connection_and_an_idle_one_releases_it() {
    let db = database().await;
    let releases = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&releases);
    let pool = PgPoolOptions::new()
        .max_connections(3)
        .after_release(move |_, _| {
            counter.fetch_add(1, Relaxed);
            Box::pin(async { Ok(true) })
        })
        .connect_lazy_with(db.connect_options());
    let batcher = divider(&pool, OPTIONS);
    for _ in 0..200 {
        batcher.call(1).await.unwrap();
    }
    let times = releases.load(Relaxed);
    assert!(times < 20, "released {times} times in 200 calls");
    eventually("the idle batcher releases its connection", async || {
        pool.num_idle() == 1
    })
    .await;
}

#[tokio::test]
async fn a_busy_batcher_shares_the_only_connection_with_others() {
    let db = database().await;
    let pool = db.pool_of(1);
    let (batcher, stop) = (divider(&pool, OPTIONS), CancellationToken::new());
    let calling = tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        loop {
            batcher.call(1).await.unwrap();
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
    calling.await.unwrap();
}

#[tokio::test]
async fn a_failed_call_does_not_affect_the_next_one() {
    let db = database().await;
    let batcher = divider(&db.pool(), OPTIONS);
    let error = batcher.call(0).await.unwrap_err();
    assert!(error.to_string().contains("division by zero"), "{error}");
    assert!(batcher.call(1).await.is_ok());
}

#[tokio::test]
async fn a_bad_request_fails_alone() {
    let db = database().await;
    let batcher = divider(&db.pool(), OPTIONS);
    let answers = join_all([3, 2, 0, 1].map(|divisor| batcher.call(divisor))).await;
    let failed: Vec<bool> = answers.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, false, true, false]);
}

#[tokio::test]
async fn a_broken_connection_costs_one_answer() {
    let db = database().await;
    let batcher = divider(&db.pool_of(3), OPTIONS);
    let kept = batcher.call(1).await.unwrap();
    sqlx::query("select pg_terminate_backend($1, 10000)")
        .bind(kept)
        .execute(&db.pool())
        .await
        .unwrap();
    eventually("another connection answers", async || {
        batcher.call(1).await.is_ok_and(|other| other != kept)
    })
    .await;
}

#[tokio::test]
async fn a_silent_connection_delays_a_call_no_longer_than_its_deadline() {
    let db = database().await;
    let proxy = Proxy::for_database(&db).await;
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_lazy_with(proxy.connect_options());
    let call_timeout = Duration::from_secs(2);
    let batcher = divider(
        &pool,
        BatcherOptions {
            call_timeout,
            ..OPTIONS
        },
    );
    let before = batcher.call(1).await.unwrap();
    proxy.black_hole();
    let started = Instant::now();
    let error = batcher.call(1).await.unwrap_err();
    let waited = started.elapsed();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("no answer within 2s"), "{error}");
    assert!(
        waited < call_timeout + Duration::from_secs(3),
        "waited {waited:?}"
    );
    proxy.pass();
    let after = batcher.call(1).await.unwrap();
    assert_ne!(before, after, "the silent connection was closed");
}

#[tokio::test]
async fn a_panic_fails_its_batch_and_the_next_one_succeeds() {
    let batcher: Batcher<bool, ()> = Batcher::new(OPTIONS, |requests: &[bool]| {
        Box::pin(async move {
            assert!(requests.iter().all(|fine| *fine), "on purpose");
            Ok(vec![(); requests.len()])
        })
    });
    assert!(matches!(
        batcher.call(false).await,
        Err(Error::Panicked("division"))
    ));
    batcher.call(true).await.unwrap();
}

#[tokio::test]
async fn a_key_always_takes_the_same_lane() {
    let db = database().await;
    let options = BatcherOptions {
        lanes: 4,
        max_batch: 1,
        ..OPTIONS
    };
    let batcher = divider(&db.pool_of(6), options);
    // Lanes keep their connections while they are busy, so a backend stands for a lane.
    let backends = join_all((0..20).map(|_| batcher.call_keyed("a", 1))).await;
    let mut backends: Vec<i32> = backends.into_iter().map(Result::unwrap).collect();
    backends.dedup();
    assert_eq!(backends.len(), 1);
}

#[tokio::test]
async fn stopping_answers_every_accepted_call() {
    let db = database().await;
    let batcher = Arc::new(divider(&db.pool(), OPTIONS));
    let calls = join_all((0..30).map(|_| {
        let batcher = Arc::clone(&batcher);
        async move { batcher.call(1).await }
    }));
    let answers = tokio::spawn(calls).await.unwrap();
    assert!(answers.into_iter().all(|answer| answer.is_ok()));
    Arc::into_inner(batcher).unwrap().stop().await;
}
