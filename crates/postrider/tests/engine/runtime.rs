//! The worker: nothing lost, nothing hidden, nothing runs past its lease.

mod backlog;
mod batch_effect;
mod fast_path;
mod handling;
mod leases;
mod worker_pool;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::RetryPolicy;
use postrider::outbox::{Message, OUTBOX, enqueue_many};
use postrider::{Handler, Verdict, Worker, WorkerOptions};
use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::eventually;

fn options() -> WorkerOptions {
    WorkerOptions {
        rescue_every: Duration::from_millis(20),
        poll_max: Duration::from_millis(100),
        ..WorkerOptions::default()
    }
}

/// Rarely polls: what it finds was hinted at.
fn rarely_polling() -> WorkerOptions {
    let hour = Duration::from_secs(3600);
    WorkerOptions {
        poll_min: hour,
        poll_max: hour,
        ..options()
    }
}

fn short_delays() -> RetryPolicy {
    RetryPolicy::fixed(Duration::ZERO, 3).unwrap()
}

struct Running {
    stop: CancellationToken,
    task: JoinHandle<postrider::Result<()>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(worker.run(stop.clone()));
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn worker(pool: &PgPool) -> Worker {
    Worker::new(pool.clone(), &OUTBOX)
        .unwrap()
        .options(options())
}

/// Records the numbers of the items that it handles.
fn recording(handled: &Arc<Mutex<Vec<i64>>>) -> Handler {
    let handled = Arc::clone(handled);
    Handler::new(move |item| {
        let number: Result<i64, _> = item.read();
        handled.lock().unwrap().extend(number);
        async { Ok(Verdict::Done) }
    })
}

async fn fill(pool: &PgPool, count: i64) {
    let messages: Vec<Message> = (0..count).map(|n| Message::new("t", &n).unwrap()).collect();
    enqueue_many(&mut pool.acquire().await.unwrap(), &messages)
        .await
        .unwrap();
}

async fn states(pool: &PgPool) -> HashMap<String, i64> {
    let rows: Vec<(String, i64)> =
        sqlx::query_as("select state::text, count(*) from postrider.outbox group by 1")
            .fetch_all(pool)
            .await
            .unwrap();
    rows.into_iter().collect()
}

async fn empty(pool: &PgPool) {
    eventually("the outbox is empty", async || match states(pool).await {
        states if states.is_empty() => Ok(()),
        states => Err(states),
    })
    .await;
}

async fn error_code(pool: &PgPool) -> Option<String> {
    sqlx::query_scalar("select error_code from postrider.outbox where state = 'dead'")
        .fetch_optional(pool)
        .await
        .unwrap()
}

async fn died_of(pool: &PgPool, code: &str) {
    eventually("the item is dead", async || match error_code(pool).await {
        Some(found) if found == code => Ok(()),
        other => Err(other),
    })
    .await;
}
