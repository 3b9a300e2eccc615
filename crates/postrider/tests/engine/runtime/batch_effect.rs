//! Batch effects: one transaction, only under a valid lease, and failures stay isolated.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::RetryPolicy;
use postrider::outbox::OUTBOX;
use postrider::{Handled, Handler, Verdict, Worker, WorkerOptions};
use sqlx::{Executor, PgPool};
use tokio::sync::Barrier;

use super::*;
use crate::support::database;

async fn effects(pool: &PgPool) -> Vec<i64> {
    sqlx::query_scalar("select n from effect order by n")
        .fetch_all(pool)
        .await
        .unwrap()
}

/// Returns the item's number as its value; the write rejects the unlucky ones at their first attempt.
fn with_value(unlucky: impl Fn(i64) -> bool + Send + Sync + 'static) -> Handler {
    let unlucky = Arc::new(unlucky);
    Handler::new(move |item| {
        let unlucky = Arc::clone(&unlucky);
        async move {
            let n: i64 = item.read()?;
            let refused = item.attempts == 0 && unlucky(n);
            Ok(Handled::from(Verdict::Done).with_value((n, refused)))
        }
    })
    .batch_effect(|tx, values: Vec<Arc<(i64, bool)>>| {
        Box::pin(async move {
            let numbers: Vec<i64> = values.iter().map(|value| value.0).collect();
            sqlx::query("insert into effect select unnest($1::bigint[])")
                .bind(numbers)
                .execute(&mut *tx)
                .await?;
            assert!(!values.iter().any(|v| v.1 && v.0 % 4 == 0), "on purpose");
            match values.iter().any(|value| value.1) {
                true => Err("refused after the write".into()),
                false => Ok(()),
            }
        })
    })
}

#[tokio::test]
async fn values_ready_together_commit_together_with_their_items() {
    let db = database().await;
    let pool = db.pool_of(8);
    pool.execute("create table effect (n bigint)")
        .await
        .unwrap();
    fill(&pool, 64).await;
    // All are ready at once: the first is written alone, the others collect.
    let ready = Arc::new(Barrier::new(64));
    let handler = Handler::new(move |item| {
        let ready = Arc::clone(&ready);
        async move {
            ready.wait().await;
            Ok(Handled::from(Verdict::Done).with_value(item.read::<i64>()?))
        }
    })
    .concurrency(64)
    .batch_effect(|tx, values: Vec<Arc<i64>>| {
        Box::pin(async move {
            let values: Vec<i64> = values.iter().map(|value| **value).collect();
            sqlx::query("insert into effect select unnest($1::bigint[])")
                .bind(values)
                .execute(tx)
                .await?;
            Ok(())
        })
    });
    let running = Running::start(worker(&pool).handle("t", handler));
    empty(&pool).await;
    running.stop().await;
    assert_eq!(effects(&pool).await, (0..64).collect::<Vec<_>>());
    let transactions: Vec<String> = sqlx::query_scalar("select distinct xmin::text from effect")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert!(transactions.len() < 32, "{}", transactions.len());
}

#[tokio::test]
async fn a_rejected_or_panicking_value_costs_only_its_own_item_an_attempt() {
    let db = database().await;
    let pool = db.pool_of(8);
    pool.execute("create table effect (n bigint)")
        .await
        .unwrap();
    fill(&pool, 40).await;
    let handler = with_value(|n| n % 2 == 0).policy(short_delays());
    let running = Running::start(worker(&pool).handle("t", handler));
    empty(&pool).await;
    running.stop().await;
    assert_eq!(effects(&pool).await, (0..40).collect::<Vec<_>>());
    let failed: Vec<i64> = sqlx::query_scalar(
        "select distinct item_id from postrider.attempt where outcome = 'retry' order by 1",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(failed.len(), 20, "only the rejected ones");
}

#[tokio::test]
async fn a_value_without_a_batch_effect_is_a_failure() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let handler = Handler::new(|_| async { Ok(Handled::from(Verdict::Done).with_value(1_i64)) });
    let running = Running::start(worker(&pool).handle("t", handler.policy(RetryPolicy::none())));
    eventually("the item is dead", async || {
        let dead: i64 = sqlx::query_scalar(
            "select count(*) from postrider.outbox where state = 'dead' and error_message like '%has no batch_effect%'",
        )
        .fetch_one(&pool)
        .await
        .unwrap();
        if dead == 1 { Ok(()) } else { Err(dead) }
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_value_whose_lease_was_lost_is_not_written_but_its_neighbours_are() {
    let db = database().await;
    let pool = db.pool_of(8);
    pool.execute("create table effect (n bigint, losses integer)")
        .await
        .unwrap();
    fill(&pool, 8).await;
    let stolen: HashSet<i64> = HashSet::from([2, 5]);
    let ready = Arc::new(Barrier::new(8));
    let own = pool.clone();
    let handler = Handler::new(move |item| {
        let (ready, pool, stolen) = (Arc::clone(&ready), own.clone(), stolen.clone());
        async move {
            let n: i64 = item.read()?;
            if item.losses == 0 && stolen.contains(&n) {
                // As after a stall past the lease: another worker has the item and will release it.
                let steal = "update postrider.outbox set fence = fence + 1, lease_owner = 'other',
                             lease_until = now() + interval '1 second' where id = $1";
                sqlx::query(steal).bind(item.id).execute(&pool).await?;
            }
            if item.losses == 0 {
                ready.wait().await;
            }
            Ok(Handled::from(Verdict::Done).with_value((n, item.losses)))
        }
    })
    .concurrency(8)
    .batch_effect(|tx, values: Vec<Arc<(i64, i32)>>| {
        Box::pin(async move {
            for value in values {
                sqlx::query("insert into effect values ($1, $2)")
                    .bind(value.0)
                    .bind(value.1)
                    .execute(&mut *tx)
                    .await?;
            }
            Ok(())
        })
    });
    let options = WorkerOptions {
        rescue_every: Duration::from_millis(50),
        ..options()
    };
    let worker = Worker::new(pool.clone(), &OUTBOX).unwrap().options(options);
    let running = Running::start(worker.handle("t", handler));
    empty(&pool).await;
    running.stop().await;
    assert_eq!(effects(&pool).await, (0..8).collect::<Vec<_>>());
    let late: Vec<i64> = sqlx::query_scalar("select n from effect where losses > 0 order by n")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(late, [2, 5], "written by the later holder");
}
