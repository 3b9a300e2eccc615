//! Measures the outbox on a database of your own: `DATABASE_URL=… cargo run --release --example drain -- 50000`.
//!
//! Prints, as JSON lines: bulk enqueue, drain with the defaults, drain with a batch handler, group commit of single enqueues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use postrider::migrate::Migrator;
use postrider::outbox::{Enqueuer, EnqueuerOptions, Message, OUTBOX, enqueue, enqueue_many};
use postrider::wake::Waker;
use postrider::{BoxError, Handler, Verdict, Worker, WorkerOptions};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "set DATABASE_URL to a database that may be written to")?;
    let count: usize = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(50_000);
    let size: usize = std::env::args()
        .nth(2)
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let pool = PgPoolOptions::new()
        .max_connections(80)
        .connect(&url)
        .await?;
    Migrator::new([postrider::migrations()])
        .run(&mut *pool.acquire().await?)
        .await?;
    sqlx::query("truncate postrider.outbox")
        .execute(&pool)
        .await?;

    let messages: Vec<Message> = (0..count)
        .map(|n| {
            Message::new(
                "bench.tick",
                &serde_json::json!({"n": n, "pad": "x".repeat(size)}),
            )
        })
        .collect::<Result<_, _>>()?;
    for handler in ["one", "batch"] {
        let wal = wal(&pool).await?;
        let began = Instant::now();
        let mut tx = pool.begin().await?;
        enqueue_many(&mut tx, &messages).await?;
        tx.commit().await?;
        report("bulk_enqueue", count, began, wal, &pool).await?;
        sqlx::query("vacuum analyze postrider.outbox")
            .execute(&pool)
            .await?;
        drain(&pool, handler, count).await?;
    }
    for callers in [8, 64, 512] {
        grouped(&pool, callers).await?;
    }
    single(&pool, 8).await?;
    latency(&pool).await?;
    Ok(())
}

async fn drain(pool: &PgPool, handler: &str, count: usize) -> Result<(), BoxError> {
    let done = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let (seen, finish) = (Arc::clone(&done), stop.clone());
    let see = move |n: usize| {
        if seen.fetch_add(n, Ordering::Relaxed) + n >= count {
            finish.cancel();
        }
    };
    let worker = Worker::new(pool.clone(), &OUTBOX)?;
    let worker = if handler == "one" {
        let see = Arc::new(see);
        worker.handle(
            "bench.tick",
            Handler::new(move |_item| {
                let see = Arc::clone(&see);
                async move {
                    see(1);
                    Ok(Verdict::Done)
                }
            }),
        )
    } else {
        let see = Arc::new(see);
        let batch = Handler::batch(1000, move |items| {
            let see = Arc::clone(&see);
            async move {
                see(items.len());
                Ok(vec![Verdict::Done; items.len()])
            }
        });
        worker
            .options(WorkerOptions {
                batch: 1000,
                prefetch: 4000,
                ..WorkerOptions::default()
            })
            .handle("bench.tick", batch.concurrency(2))
    };
    let wal = wal(pool).await?;
    let began = Instant::now();
    worker.run(stop).await?;
    let left: i64 = sqlx::query_scalar("select count(*) from postrider.outbox")
        .fetch_one(pool)
        .await?;
    assert_eq!(left, 0, "everything is settled when the worker has stopped");
    report(&format!("drain_{handler}"), count, began, wal, pool).await
}

async fn grouped(pool: &PgPool, callers: usize) -> Result<(), BoxError> {
    let enqueuer = Arc::new(Enqueuer::start(pool, None, EnqueuerOptions::default()));
    let each = 20_000 / callers;
    let wal = wal(pool).await?;
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let enqueuer = Arc::clone(&enqueuer);
            tokio::spawn(async move {
                for n in 0..each {
                    enqueuer.enqueue(Message::new("bench.tick", &n)?).await?;
                }
                Ok::<_, postrider::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    report(
        &format!("grouped_{callers}"),
        each * callers,
        began,
        wal,
        pool,
    )
    .await
}

async fn single(pool: &PgPool, callers: usize) -> Result<(), BoxError> {
    let wal = wal(pool).await?;
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut connection = pool.acquire().await?;
                for n in 0..2_000 {
                    enqueue(&mut connection, &Message::new("bench.tick", &n)?).await?;
                }
                Ok::<_, postrider::Error>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    report(
        &format!("single_{callers}"),
        2_000 * callers,
        began,
        wal,
        pool,
    )
    .await
}

async fn latency(pool: &PgPool) -> Result<(), BoxError> {
    sqlx::query("truncate postrider.outbox")
        .execute(pool)
        .await?;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let began = Instant::now();
    let stop = CancellationToken::new();
    let handler = Handler::new(move |item| {
        let sender = sender.clone();
        async move {
            let sent: u64 = item.read()?;
            let _ = sender.send(began.elapsed() - Duration::from_micros(sent));
            Ok(Verdict::Done)
        }
    });
    let worker = Worker::new(pool.clone(), &OUTBOX)?.handle("bench.tick", handler);
    let running = tokio::spawn(worker.run(stop.clone()));
    let waker = Waker::new(pool.clone());
    let mut connection = pool.acquire().await?;
    let mut every = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..500 {
        every.tick().await;
        let now = u64::try_from(began.elapsed().as_micros())?;
        enqueue(&mut connection, &Message::new("bench.tick", &now)?).await?;
        waker.wake(&OUTBOX);
    }
    let mut times = Vec::new();
    while times.len() < 500 {
        times.push(receiver.recv().await.ok_or("the worker stopped")?);
    }
    stop.cancel();
    running.await??;
    times.sort_unstable();
    println!(
        "{{\"name\":\"pickup_ms_from_before_insert\",\"p50\":{:.2},\"p95\":{:.2},\"p99\":{:.2}}}",
        times[250].as_secs_f64() * 1e3,
        times[475].as_secs_f64() * 1e3,
        times[495].as_secs_f64() * 1e3
    );
    Ok(())
}

async fn wal(pool: &PgPool) -> Result<i64, BoxError> {
    Ok(
        sqlx::query_scalar("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
            .fetch_one(pool)
            .await?,
    )
}

async fn report(
    name: &str,
    count: usize,
    began: Instant,
    before: i64,
    pool: &PgPool,
) -> Result<(), BoxError> {
    let seconds = began.elapsed().as_secs_f64();
    let bytes = (wal(pool).await? - before) as f64 / count as f64;
    println!(
        "{{\"name\":\"{name}\",\"per_second\":{:.0},\"wal_bytes_each\":{bytes:.0}}}",
        count as f64 / seconds
    );
    Ok(())
}
