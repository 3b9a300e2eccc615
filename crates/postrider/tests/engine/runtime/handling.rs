//! Verdicts, failures, panics, unknown kinds.

use crate::support::{database, eventually, own_table};
use postrider::RetryPolicy;
use postrider::failure::{Category, Failure};
use postrider::inbox::InboxError;
use postrider::ledger::LedgerError;
use postrider::outbox::{Message, OUTBOX, enqueue, enqueue_many};
use postrider::wake::Waker;
use postrider::{BoxError, Handled, Handler, Verdict, Worker};
use sqlx::Executor;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn everything_is_handled_once_by_one_item_and_batch_handlers() {
    for batch in [false, true] {
        let db = database().await;
        let pool = db.pool_of(8);
        fill(&pool, 3_000).await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        let handler = if batch {
            Handler::batch(100, move |items| {
                log.lock().unwrap().extend(items.iter().map(|item| item.id));
                async move { Ok(vec![Verdict::Done; items.len()]) }
            })
        } else {
            Handler::new(move |item| {
                log.lock().unwrap().push(item.id);
                async { Ok(Verdict::Done) }
            })
        };
        let running = Running::start(worker(&pool).handle("t", handler));
        empty(&pool).await;
        running.stop().await;
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        assert_eq!(seen.len(), 3_000);
        seen.dedup();
        assert_eq!(seen.len(), 3_000);
    }
}

#[tokio::test]
async fn a_failure_is_retried_until_the_policy_is_exhausted() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = Handler::new(move |item| {
        assert_eq!(
            usize::try_from(item.attempts).unwrap(),
            counted.fetch_add(1, Ordering::SeqCst)
        );
        async {
            Ok(Verdict::retry(Failure::with_category(
                "DOWN",
                Category::Network,
                "down",
            )))
        }
    });
    let running = Running::start(worker(&pool).handle("t", handler.policy(short_delays())));
    died_of(&pool, "DOWN").await;
    running.stop().await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let attempts = postrider::internal::attempts::attempts(&pool, "postrider.outbox", 1)
        .await
        .unwrap();
    let outcomes: Vec<&str> = attempts
        .iter()
        .map(|attempt| attempt.outcome.as_str())
        .collect();
    assert_eq!(outcomes, ["retry", "retry", "dead"]);
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt_and_the_worker_continues() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 2).await;
    let handler = Handler::new(|item| async move {
        assert_ne!(item.read::<i64>()?, 0, "boom");
        Ok(Verdict::Done)
    });
    let running = Running::start(worker(&pool).handle("t", handler.policy(short_delays())));
    died_of(&pool, "HANDLER_PANIC").await;
    eventually("the other one is done", async || {
        states(&pool).await.values().sum::<i64>() == 1
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn an_unreadable_payload_is_a_dead_letter_at_once() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let handler = Handler::new(|item| async move {
        let _: String = item.read()?;
        Ok(Verdict::Done)
    });
    let running = Running::start(worker(&pool).handle("t", handler));
    died_of(&pool, "UNREADABLE_PAYLOAD").await;
    running.stop().await;
}

#[tokio::test]
async fn a_handler_timeout_is_a_failed_attempt() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let handler = Handler::new(|_| async { std::future::pending::<Result<Verdict, _>>().await });
    let handler = handler
        .timeout(Duration::from_millis(20))
        .policy(short_delays());
    let running = Running::start(worker(&pool).handle("t", handler));
    died_of(&pool, "TIMEOUT").await;
    running.stop().await;
}

#[tokio::test]
async fn unknown_kinds_wait_visibly() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    enqueue(
        &mut pool.acquire().await.unwrap(),
        &Message::new("unknown", &1).unwrap(),
    )
    .await
    .unwrap();
    let handler = Handler::new(|_| async { Ok(Verdict::Done) });
    let running = Running::start(worker(&pool).handle("t", handler));
    eventually("only the unknown one is left", async || {
        states(&pool).await == HashMap::from([("ready".to_owned(), 1)])
    })
    .await;
    const UNHANDLED: &str = "
        select distinct topic from postrider.outbox o where finished_at is null and not exists (
            select from postrider.worker w where w.work_table = 'postrider.outbox' and w.seen_at > now() - w.ttl
              and (w.kinds is null or o.topic = any(w.kinds)))";
    let unhandled: Vec<String> = eventually("the worker is on the list", async || {
        let rows: Vec<String> = sqlx::query_scalar(UNHANDLED)
            .fetch_all(&pool)
            .await
            .unwrap();
        let workers: i64 = sqlx::query_scalar("select count(*) from postrider.worker")
            .fetch_one(&pool)
            .await
            .unwrap();
        (workers == 1).then_some(rows)
    })
    .await;
    assert_eq!(unhandled, ["unknown"]);
    running.stop().await;
    let workers: i64 = sqlx::query_scalar("select count(*) from postrider.worker")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(workers, 0, "a stopped worker deregisters");
}

#[tokio::test]
async fn an_effect_commits_with_its_verdict_or_not_at_all() {
    let db = database().await;
    let pool = db.pool_of(8);
    pool.execute("create table effect (n bigint)")
        .await
        .unwrap();
    fill(&pool, 20).await;
    let handler = Handler::new(|item| async move {
        let n: i64 = item.read()?;
        let first = item.attempts == 0;
        let handled = Handled::from(Verdict::Done).with(move |tx| {
            Box::pin(async move {
                sqlx::query("insert into effect values ($1)")
                    .bind(n)
                    .execute(&mut *tx)
                    .await?;
                if first && n % 2 == 0 {
                    return Err("refused after the write".into());
                }
                Ok(())
            })
        });
        Ok(handled)
    });
    let running = Running::start(worker(&pool).handle("t", handler.policy(short_delays())));
    empty(&pool).await;
    running.stop().await;
    let effects: Vec<i64> = sqlx::query_scalar("select n from effect order by n")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(effects, (0..20).collect::<Vec<_>>(), "each exactly once");
}

#[tokio::test]
async fn an_outage_inside_an_effect_costs_no_attempt_whatever_wraps_it() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 3).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = Handler::new(move |item| {
        assert_eq!(item.attempts, 0);
        let call = counted.fetch_add(1, Ordering::SeqCst);
        let outage = move || -> Result<(), BoxError> {
            let away = || sqlx::Error::from(std::io::Error::other("connection reset"));
            match call {
                0 => Err(InboxError::from(away()).into()),
                1 => Err(LedgerError::from(away()).into()),
                2 => Err(InboxError::Busy.into()),
                _ => Ok(()),
            }
        };
        async move { Ok(Handled::from(Verdict::Done).with(move |_| Box::pin(async move { outage() }))) }
    });
    let running = Running::start(worker(&pool).handle("t", handler.policy(RetryPolicy::none())));
    empty(&pool).await;
    running.stop().await;
    assert_eq!(calls.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_snooze_costs_no_attempt() {
    let db = database().await;
    let pool = db.pool();
    fill(&pool, 1).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = Handler::new(move |item| {
        assert_eq!(item.attempts, 0);
        let verdict = if counted.fetch_add(1, Ordering::SeqCst) < 5 {
            Verdict::Snooze(Duration::ZERO)
        } else {
            Verdict::Done
        };
        async { Ok(verdict) }
    });
    let running = Running::start(worker(&pool).handle("t", handler.policy(RetryPolicy::none())));
    empty(&pool).await;
    running.stop().await;
    assert_eq!(calls.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_hint_wakes_a_worker_that_rarely_polls() {
    let db = database().await;
    let pool = db.pool();
    let (done, mut dones) = tokio::sync::mpsc::unbounded_channel();
    let handler = Handler::new(move |_| {
        done.send(()).unwrap();
        async { Ok(Verdict::Done) }
    });
    let running = Running::start(worker(&pool).options(rarely_polling()).handle("t", handler));
    let waker = Waker::new(pool.clone());
    for _ in 0..3 {
        fill(&pool, 1).await;
        // Whether the worker listens already or polls once when it starts to: the message is found.
        waker.wake(&OUTBOX);
        dones.recv().await.unwrap();
    }
    running.stop().await;
}

#[tokio::test]
async fn a_worker_runs_ordered_items_in_order() {
    let db = database().await;
    let pool = db.pool_of(8);
    let messages: Vec<Message> = (0..60)
        .map(|n: i64| {
            Message::new("t", &n)
                .unwrap()
                .ordering_key(format!("k{}", n % 3))
                .unwrap()
        })
        .collect();
    enqueue_many(&mut pool.acquire().await.unwrap(), &messages)
        .await
        .unwrap();
    let seen: Arc<Mutex<HashMap<i64, Vec<i64>>>> = Arc::default();
    let log = Arc::clone(&seen);
    let handler = Handler::new(move |item| {
        let n: i64 = item.read().unwrap();
        log.lock().unwrap().entry(n % 3).or_default().push(n);
        async { Ok(Verdict::Done) }
    });
    let running = Running::start(worker(&pool).handle("t", handler));
    empty(&pool).await;
    running.stop().await;
    for (key, seen) in seen.lock().unwrap().iter() {
        assert_eq!(*seen, (0..20).map(|n| n * 3 + key).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_worker_uses_a_custom_tables_own_names() {
    let db = database().await;
    let pool = db.pool();
    own_table::create(&pool).await;
    pool.execute("insert into shop.parcel (weight) select n from generate_series(1, 10) n")
        .await
        .unwrap();
    let handler = Handler::new(|item| async move {
        let payload: serde_json::Value = item.read()?;
        if payload["weight"] == 7 {
            return Ok(Verdict::Dead(Failure::new("TOO_HEAVY", "7 kg")));
        }
        Ok(Verdict::Done)
    });
    let worker = Worker::new(pool.clone(), &own_table::PARCEL)
        .unwrap()
        .options(options())
        .handle_others(handler);
    let running = Running::start(worker);
    eventually("all parcels are closed", async || {
        let open: i64 =
            sqlx::query_scalar("select count(*) from shop.parcel where closed_at is null")
                .fetch_one(&pool)
                .await
                .unwrap();
        open == 0
    })
    .await;
    running.stop().await;
    let statuses: Vec<(String, i64)> =
        sqlx::query_as("select status, count(*) from shop.parcel group by 1 order by 1")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(
        statuses,
        [("DLQ".to_owned(), 1), ("SUCCEEDED".to_owned(), 9)]
    );
}

#[tokio::test]
async fn a_worker_without_handlers_and_a_closed_pool_are_errors() {
    let db = database().await;
    let pool = db.pool();
    let error = worker(&pool)
        .run(CancellationToken::new())
        .await
        .unwrap_err();
    assert!(matches!(error, postrider::Error::Invalid { .. }));
    let handler = Handler::new(|_| async { Ok(Verdict::Done) });
    let closing = worker(&pool).handle("t", handler);
    pool.close().await;
    let error = closing.run(CancellationToken::new()).await.unwrap_err();
    assert!(matches!(
        error,
        postrider::Error::Database(sqlx::Error::PoolClosed)
    ));
}

#[tokio::test]
async fn on_settled_runs_after_each_commit_and_never_for_a_lost_lease() {
    let db = database().await;
    let pool = db.pool_of(8);
    fill(&pool, 4).await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    let stolen = pool.clone();
    let handler = Handler::new(move |item| {
        let pool = stolen.clone();
        async move {
            let down = || Failure::with_category("DOWN", Category::Network, "down");
            Ok(match item.id {
                // Alone in its transaction, and among others in the settler's batch.
                1 => Handled::from(Verdict::Done).with(|_| Box::pin(async { Ok(()) })),
                2 => Verdict::retry(down()).into(),
                3 => Verdict::Dead(down()).into(),
                _ => {
                    sqlx::query("update postrider.outbox set fence = fence + 1 where id = $1")
                        .bind(item.id)
                        .execute(&pool)
                        .await?;
                    Verdict::Done.into()
                }
            })
        }
    })
    .policy(RetryPolicy::fixed(Duration::from_secs(3_600), 3).unwrap())
    .on_settled(move |item, outcome| {
        let word = format!("{outcome:?}");
        let word = word.split([' ', '(']).next().unwrap_or_default().to_owned();
        log.lock().unwrap().push((item.id, word));
        panic!("what is told must not stop the settling of others");
    });
    let running = Running::start(worker(&pool).handle("t", handler));
    eventually("three settlements are reported", async || {
        let told = told.lock().unwrap().clone();
        if told.len() == 3 { Ok(()) } else { Err(told) }
    })
    .await;
    running.stop().await;
    let mut told = told.lock().unwrap().clone();
    told.sort();
    let expected = [(1, "Done"), (2, "Retry"), (3, "Dead")];
    assert_eq!(told, expected.map(|(id, word)| (id, word.to_owned())));
}
