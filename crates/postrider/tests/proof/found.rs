//! What the proof has found in the engine, each as small as it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postrider::RetryPolicy;
use postrider::failure::{Category, Failure};
use postrider::internal::attempts;
use postrider::lease::{Claim, Outcome, Queue, Settlement, Suspect};
use postrider::outbox::{Message, OUTBOX, enqueue};
use postrider::{Effect, Handled, Handler, Verdict, Worker, WorkerOptions};
use postrider_testkit::within;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::stage::{Stage, finished};

const LEASE: Duration = Duration::from_millis(500);

async fn one_item(pool: &PgPool) -> i64 {
    let mut connection = pool.acquire().await.unwrap();
    let message = Message::new("one", &()).unwrap();
    enqueue(&mut connection, &message).await.unwrap().id
}

async fn work(pool: &PgPool, handler: Handler) {
    let policy = RetryPolicy::fixed(Duration::from_millis(10), 3).unwrap();
    let worker = Worker::new(pool.clone(), &OUTBOX)
        .unwrap()
        .options(WorkerOptions {
            lease: LEASE,
            rescue_every: Duration::from_millis(50),
            ..WorkerOptions::default()
        })
        .handle("one", handler.policy(policy));
    let stop = CancellationToken::new();
    let working = tokio::spawn(worker.run(stop.clone()));
    finished(pool).await;
    stop.cancel();
    working.await.unwrap().unwrap();
}

/// A worker that stalled can have two verdicts on one item in its next batch. Both were taken for held.
#[tokio::test]
async fn a_stale_and_a_live_lease_in_one_batch_are_told_apart() {
    let stage = Stage::new().await;
    let pool = stage.db.pool();
    let queue = Queue::new(&OUTBOX).unwrap();
    let item = one_item(&pool).await;
    let claim = Claim::new("slow", LEASE, 1);
    let (stale, _) = queue.claim(&pool, &claim).await.unwrap().pop().unwrap();
    sqlx::query("update postrider.outbox set lease_until = now() - interval '1 second'")
        .execute(&pool)
        .await
        .unwrap();
    let again = queue.claim_suspect(&pool, "slow", LEASE, &[item]).await;
    let Some(Suspect::Run(live, _)) = again.unwrap() else {
        panic!("the lost item was not given out again");
    };
    let failure = Failure::with_category("X", Category::System, "x");
    let batch = vec![
        Settlement::new(stale, Outcome::Done),
        Settlement::new(
            live,
            Outcome::Retry {
                after: Duration::ZERO,
                failure,
            },
        ),
    ];
    let settled = queue.settle(&pool, "slow", batch).await.unwrap();
    assert_eq!((settled.settled, settled.lost.len()), (1, 1), "{settled:?}");
    let entries = attempts::attempts(&pool, OUTBOX.name, item).await.unwrap();
    let outcomes: Vec<&str> = entries.iter().map(|entry| entry.outcome.as_str()).collect();
    assert_eq!(outcomes, ["retry"]);
}

/// An effect is the handler's code. Its panic took the consumer with it, and the lease was renewed for ever.
#[tokio::test]
async fn an_effect_that_panics_is_a_failed_attempt() {
    let stage = Stage::new().await;
    let pool = stage.db.pool();
    let item = one_item(&pool).await;
    let handler = Handler::new(|item| async move {
        let first = item.attempts == 0;
        Ok(Handled::from(Verdict::Done).with(move |_| {
            Box::pin(async move {
                assert!(!first, "the first effect panics");
                Ok(())
            })
        }))
    });
    work(&pool, handler).await;
    let entries = attempts::attempts(&pool, OUTBOX.name, item).await.unwrap();
    let codes: Vec<Option<&str>> = entries.iter().map(|entry| entry.code.as_deref()).collect();
    assert_eq!(codes, [Some("HANDLER_PANIC"), None]);
}

/// The next of an ordering key waited for the sweep if a transaction had the key when its head was settled.
#[tokio::test]
async fn a_key_that_was_busy_when_its_head_was_settled_goes_on_when_it_is_free() {
    let stage = Stage::new().await;
    let pool = stage.db.pool();
    let message = Message::new("one", &()).unwrap().ordering_key("k").unwrap();
    let mut connection = pool.acquire().await.unwrap();
    enqueue(&mut connection, &message).await.unwrap();
    let mut holds_the_key = pool.begin().await.unwrap();
    enqueue(&mut holds_the_key, &message).await.unwrap();
    let handler = Handler::new(|_| async {
        Ok(Handled::from(Verdict::Done).with(|_| Box::pin(async { Ok(()) })))
    });
    let worker = Worker::new(pool.clone(), &OUTBOX)
        .unwrap()
        .handle("one", handler);
    let stop = CancellationToken::new();
    let working = tokio::spawn(worker.run(stop.clone()));
    finished(&pool).await;
    holds_the_key.commit().await.unwrap();
    // The sweep comes at the worker's start and then every 15 s.
    within(Duration::from_secs(8), "the next goes out", async || {
        const LEFT: &str = "select count(*) from postrider.outbox";
        let left: i64 = sqlx::query_scalar(LEFT).fetch_one(&pool).await.unwrap();
        left == 0
    })
    .await;
    stop.cancel();
    working.await.unwrap().unwrap();
}

/// What is written at the death of an item that lost its workers was refused once: the item stayed leased for ever.
#[tokio::test]
async fn a_death_whose_effect_is_refused_is_tried_again() {
    let stage = Stage::new().await;
    let pool = stage.db.pool();
    one_item(&pool).await;
    sqlx::query(
        "update postrider.outbox set state = 'leased', lease_until = now() - interval '1 second', fence = 1,
         lease_owner = 'gone', losses = 9",
    )
    .execute(&pool)
    .await
    .unwrap();
    let deaths = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&deaths);
    let handler = Handler::new(|_| async { Ok(Verdict::Done) }).on_dead(move |_, _| {
        let first = count.fetch_add(1, Ordering::SeqCst) == 0;
        let effect: Effect = Box::new(move |_| {
            Box::pin(async move { if first { Err("not yet".into()) } else { Ok(()) } })
        });
        Some(effect)
    });
    work(&pool, handler).await;
    assert_eq!(deaths.load(Ordering::SeqCst), 2);
    let state: String = sqlx::query_scalar("select state::text from postrider.outbox")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(state, "dead");
}
