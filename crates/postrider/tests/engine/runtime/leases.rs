//! Stop, renewal, watchdog, rescue.

use crate::support::{database, eventually};
use postrider::{BoxError, Handled, Handler, Verdict, WorkerOptions, WorkerPool};
use postrider_testkit::Proxy;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor, PgPool};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn silent_connections_are_closed_and_the_work_continues() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 400).await;
    let proxy = Proxy::for_database(&db).await;
    let through = through(&proxy);
    let (began, mut beginnings) = mpsc::unbounded_channel();
    let handler = Handler::new(move |_| {
        // Nobody listens any more when the test has seen enough.
        let _ = began.send(());
        async { Ok(Verdict::Done) }
    });
    let short = WorkerOptions {
        lease: Duration::from_millis(500),
        batch: 20,
        prefetch: 40,
        ..options()
    };
    let running = Running::start(worker(&through).options(short).handle("t", handler));
    beginnings.recv().await.unwrap();
    // What is in flight now never arrives, and no connection is ever reset.
    proxy.black_hole();
    eventually("a lease has run out", async || {
        let lost = "select exists (select from postrider.outbox where lease_until < now())
                    or not exists (select from postrider.outbox where state = 'leased')";
        let lost: bool = sqlx::query_scalar(lost).fetch_one(&pool).await.unwrap();
        lost.then_some(()).ok_or("not yet")
    })
    .await;
    proxy.pass();
    empty(&pool).await;
    running.stop().await;
}

#[tokio::test]
async fn a_stop_releases_waiting_items_and_awaits_running_ones() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 50).await;
    let (began, mut beginnings) = mpsc::unbounded_channel();
    let go = CancellationToken::new();
    let gate = go.clone();
    let handler = Handler::new(move |_| {
        began.send(()).unwrap();
        let gate = gate.clone();
        async move {
            gate.cancelled().await;
            Ok(Verdict::Done)
        }
    });
    let eager = WorkerOptions {
        prefetch: 50,
        ..options()
    };
    let running = Running::start(
        worker(&pool)
            .options(eager)
            .handle("t", handler.concurrency(2)),
    );
    beginnings.recv().await.unwrap();
    beginnings.recv().await.unwrap();
    running.stop.cancel();
    eventually("items that had not started are released", async || {
        let states = states(&pool).await;
        match states.get("leased") {
            Some(2) => Ok(()),
            _ => Err(states),
        }
    })
    .await;
    go.cancel();
    running.stop().await;
    assert_eq!(
        states(&pool).await,
        HashMap::from([("ready".to_owned(), 48)])
    );
    let spent: i64 =
        sqlx::query_scalar("select sum(attempts + losses)::bigint from postrider.outbox")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(spent, 0, "at no cost");
}

#[tokio::test]
async fn a_handler_that_outlasts_the_grace_period_is_stopped_and_its_item_released() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let (began, mut beginnings) = mpsc::unbounded_channel();
    let handler = Handler::new(move |_| {
        began.send(()).unwrap();
        async { std::future::pending::<Result<Verdict, _>>().await }
    });
    let impatient = WorkerOptions {
        grace: Duration::from_millis(10),
        ..options()
    };
    let running = Running::start(worker(&pool).options(impatient).handle("t", handler));
    beginnings.recv().await.unwrap();
    running.stop().await;
    assert_eq!(
        states(&pool).await,
        HashMap::from([("ready".to_owned(), 1)])
    );
}

#[tokio::test]
async fn leases_are_renewed_while_a_handler_runs() {
    let db = database().await;
    let pool = db.pool_of(1);
    fill(&pool, 1).await;
    let go = CancellationToken::new();
    let gate = go.clone();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = Handler::new(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        let gate = gate.clone();
        async move {
            gate.cancelled().await;
            Ok(Verdict::Done)
        }
    });
    let short = WorkerOptions {
        lease: Duration::from_millis(600),
        ..options()
    };
    let running = Running::start(worker(&pool).options(short).handle("t", handler));
    // Three times the lease, by the database's clock, seen from a connection of the test's own.
    let other = db.pool();
    let first = eventually("it is leased", async || lease_until(&other).await).await;
    eventually("the lease was renewed over and over", async || {
        lease_until(&other)
            .await
            .is_some_and(|now| now - first > time::Duration::milliseconds(1_800))
    })
    .await;
    go.cancel();
    empty(&other).await;
    running.stop().await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

async fn lease_until(pool: &PgPool) -> Option<time::OffsetDateTime> {
    sqlx::query_scalar("select lease_until from postrider.outbox")
        .fetch_one(pool)
        .await
        .unwrap()
}

/// Signals when it ends, however it does.
struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("stopped");
    }
}

/// The next signal, within a deadline.
async fn next<T>(signals: &mut mpsc::UnboundedReceiver<T>) -> Option<T> {
    let deadline = Duration::from_secs(60);
    let signal = tokio::time::timeout(deadline, signals.recv()).await;
    signal.expect("a signal")
}

async fn endless(signals: mpsc::UnboundedSender<&'static str>) -> Result<Verdict, BoxError> {
    let _ = signals.send("began");
    let _guard = Dropped(signals);
    std::future::pending().await
}

#[tokio::test]
async fn a_handler_is_stopped_when_its_lease_is_revoked() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let (sender, mut signals) = mpsc::unbounded_channel();
    let handler = Handler::new(move |_| endless(sender.clone()));
    let short = WorkerOptions {
        lease: Duration::from_millis(500),
        rescue_every: Duration::from_secs(600),
        ..options()
    };
    let running = Running::start(worker(&pool).options(short).handle("t", handler));
    assert_eq!(next(&mut signals).await, Some("began"));
    pool.execute(
        "update postrider.outbox set fence = fence + 1, lease_until = now() + interval '1 hour'",
    )
    .await
    .unwrap();
    assert_eq!(next(&mut signals).await, Some("stopped"));
    running.stop().await;
    assert_eq!(
        states(&pool).await,
        HashMap::from([("leased".to_owned(), 1)]),
        "the new owner's lease is untouched"
    );
}

#[tokio::test]
async fn a_handler_is_stopped_when_its_lease_cannot_be_renewed() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let proxy = Proxy::for_database(&db).await;
    let (sender, mut signals) = mpsc::unbounded_channel();
    let handler = Handler::new(move |_| endless(sender.clone()));
    let short = WorkerOptions {
        lease: Duration::from_millis(500),
        grace: Duration::from_millis(10),
        ..options()
    };
    let through = through(&proxy);
    let running = Running::start(worker(&through).options(short).handle("t", handler));
    assert_eq!(next(&mut signals).await, Some("began"));
    proxy.black_hole();
    assert_eq!(
        next(&mut signals).await,
        Some("stopped"),
        "by the worker's own clock"
    );
    proxy.pass();
    assert_eq!(next(&mut signals).await, Some("began"), "it is rescued");
    running.stop().await;
}

#[tokio::test]
async fn a_worker_stops_even_if_it_cannot_settle_and_another_continues() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let proxy = Proxy::for_database(&db).await;
    let (began, mut beginnings) = mpsc::unbounded_channel();
    let go = CancellationToken::new();
    let gate = go.clone();
    let handler = Handler::new(move |_| {
        let _ = began.send(());
        let gate = gate.clone();
        async move {
            gate.cancelled().await;
            Ok(Verdict::Done)
        }
    });
    let short = WorkerOptions {
        lease: Duration::from_millis(500),
        grace: Duration::from_millis(100),
        ..options()
    };
    let through = through(&proxy);
    let running = Running::start(worker(&through).options(short).handle("t", handler));
    beginnings.recv().await.unwrap();
    proxy.black_hole();
    go.cancel();
    running.stop().await;
    assert_eq!(
        states(&pool).await,
        HashMap::from([("leased".to_owned(), 1)]),
        "its verdict never arrived"
    );
    let other = Handler::new(|_| async { Ok(Verdict::Done) });
    let running = Running::start(worker(&pool).handle("t", other));
    empty(&pool).await;
    running.stop().await;
}

#[tokio::test]
async fn dropping_a_worker_stops_its_handlers() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let (sender, mut signals) = mpsc::unbounded_channel();
    let handler = Handler::new(move |_| endless(sender.clone()));
    let run = worker(&pool)
        .handle("t", handler)
        .run(CancellationToken::new());
    tokio::select! {
        ended = run => panic!("{ended:?}"),
        began = signals.recv() => assert_eq!(began, Some("began")),
    }
    assert_eq!(next(&mut signals).await, Some("stopped"));
}

#[tokio::test]
async fn silent_pooled_connections_cost_an_effect_no_attempt() {
    let db = database().await;
    let direct = db.pool();
    let proxy = Proxy::for_database(&db).await;
    let pool = through(&proxy);
    // All of them are idle, and healthy as far as the pool knows.
    let idle = futures_util::future::join_all((0..3).map(|_| pool.acquire())).await;
    drop(idle);
    eventually("they are back", async || pool.num_idle() == 3).await;
    proxy.black_hole();
    let (began, mut beginnings) = mpsc::unbounded_channel();
    let handler = Handler::new(move |item| {
        let _ = began.send(item.attempts);
        async { Ok(Handled::from(Verdict::Done).with(|_| Box::pin(async { Ok(()) }))) }
    });
    // The worker's own calls take another path.
    let worker = worker(&pool).with_pool(&WorkerPool::new(&direct));
    fill(&direct, 1).await;
    let running = Running::start(worker.handle("t", handler));
    assert_eq!(next(&mut beginnings).await, Some(0));
    assert_eq!(next(&mut beginnings).await, Some(0), "no attempt is spent");
    proxy.pass();
    empty(&direct).await;
    running.stop().await;
}

/// A small pool whose connections the test can cut.
fn through(proxy: &Proxy) -> PgPool {
    PgPoolOptions::new()
        .max_connections(3)
        .acquire_timeout(Duration::from_secs(2))
        .connect_lazy_with(proxy.connect_options())
}

#[tokio::test]
async fn items_of_a_lost_worker_are_rescued_and_a_poison_item_becomes_a_dead_letter() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 5).await;
    // A worker claimed all five and was killed; item 1 had already cost nine others.
    pool.execute(
        "update postrider.outbox set state = 'leased', lease_until = now() - interval '1 second', fence = 1, lease_owner = 'gone',
         losses = case when id = 1 then 9 else 0 end").await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let handler = Handler::batch(100, move |items| {
        log.lock().unwrap().push(
            items
                .iter()
                .map(|item| (item.id, item.losses))
                .collect::<Vec<_>>(),
        );
        async move { Ok(vec![Verdict::Done; items.len()]) }
    });
    pool.execute("create table obituary (id bigint, code text)")
        .await
        .unwrap();
    let handler = handler.on_dead(|item, failure| {
        let (id, code) = (item.id, failure.code().to_owned());
        Some(Box::new(move |tx| {
            Box::pin(async move {
                sqlx::query("insert into obituary values ($1, $2)")
                    .bind(id)
                    .bind(code)
                    .execute(tx)
                    .await?;
                Ok(())
            })
        }))
    });
    let running = Running::start(worker(&pool).handle("t", handler));
    died_of(&pool, "WORKER_LOST").await;
    eventually("the others are done", async || {
        states(&pool).await.values().sum::<i64>() == 1
    })
    .await;
    running.stop().await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(
        seen,
        [[(2, 1)], [(3, 1)], [(4, 1)], [(5, 1)]],
        "each alone, and the poison not at all"
    );
    let obituary: (i64, String) = sqlx::query_as("select * from obituary")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(
        obituary,
        (1, "WORKER_LOST".to_owned()),
        "written with the death"
    );
}
