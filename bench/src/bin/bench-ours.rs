//! The adapter of Postrider: the outbox and a worker, through the library's public API.

use std::sync::{Arc, Mutex, PoisonError};

use postrider::migrate::Migrator;
use postrider::outbox::{Enqueuer, EnqueuerOptions, Message, OUTBOX, enqueue, enqueue_many};
use postrider::wake::Waker;
use postrider::{Handler, Verdict, Worker, WorkerOptions};
use postrider_bench_kit::{Action, Error, Item, Request, WorkTracker, batches, produce, singles};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

const TOPIC: &str = "bench";
const BULK: usize = 1000;
/// Best settings: items per handler call, and concurrent calls.
const ITEMS_PER_CALL: usize = 500;
const CONCURRENT_CALLS: usize = 2;

fn main() -> Result<(), Error> {
    let request = Request::from_env()?;
    let runtime = match request.action {
        // Clients that only wait for the database share a thread, as in pgbench: waking another costs more than the call.
        Action::Singles => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().enable_all().build(),
    };
    runtime
        .map_err(|error| Error::queue(sqlx::Error::Io(error)))?
        .block_on(run(request))
}

async fn run(request: Request) -> Result<(), Error> {
    let connections = match request.action {
        Action::Work | Action::Grouped => 10,
        // One more for the wake-up.
        Action::Produce => 2,
        _ => request.connections(),
    };
    let pool = PgPoolOptions::new()
        // All connections before the clock starts.
        .min_connections(connections)
        .max_connections(connections)
        // By default, sqlx pings before each use.
        .test_before_acquire(!request.best())
        .connect(&request.url)
        .await
        .map_err(Error::queue)?;
    match request.action {
        Action::Setup => setup(&pool).await,
        Action::Singles => {
            // Each client keeps its connection, as in pgbench: sqlx pings a connection that is returned to the pool.
            let idle = Arc::new(Mutex::new(connect(&request, connections).await?));
            singles(
                &request,
                "enqueue on one connection per client",
                move |item| {
                    let idle = Arc::clone(&idle);
                    async move {
                        let mut connection = take(&idle)?;
                        let result = enqueue(&mut connection, &message(&item)?).await;
                        lock(&idle).push(connection);
                        result.map(drop).map_err(Error::queue)
                    }
                },
            )
            .await
        }
        Action::Grouped => grouped(&request, &pool).await,
        Action::Bulk => bulk(&request, &pool).await,
        Action::Produce => {
            let waker = Waker::new(pool.clone());
            produce(&request, "enqueue, wake after commit", async |item| {
                enqueue_one(&pool, &item).await?;
                waker.wake(&OUTBOX);
                Ok(())
            })
            .await
        }
        Action::Work => work(&request, pool).await,
    }
}

async fn connect(request: &Request, count: u32) -> Result<Vec<PgConnection>, Error> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(
            PgConnection::connect(&request.url)
                .await
                .map_err(Error::queue)?,
        );
    }
    Ok(connections)
}

fn lock(idle: &Mutex<Vec<PgConnection>>) -> std::sync::MutexGuard<'_, Vec<PgConnection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(idle: &Mutex<Vec<PgConnection>>) -> Result<PgConnection, Error> {
    let taken = lock(idle).pop();
    taken.ok_or_else(|| Error::queue(sqlx::Error::PoolClosed))
}

async fn setup(pool: &PgPool) -> Result<(), Error> {
    let mut connection = pool.acquire().await.map_err(Error::queue)?;
    let migrator = Migrator::new([postrider::migrations()]);
    migrator
        .run(&mut connection)
        .await
        .map(drop)
        .map_err(Error::queue)
}

fn message(item: &Item) -> Result<Message, Error> {
    Message::new(TOPIC, item).map_err(Error::queue)
}

/// A single message is one statement and one transaction.
async fn enqueue_one(pool: &PgPool, item: &Item) -> Result<(), Error> {
    let mut connection = pool.acquire().await.map_err(Error::queue)?;
    enqueue(&mut connection, &message(item)?)
        .await
        .map(drop)
        .map_err(Error::queue)
}

async fn grouped(request: &Request, pool: &PgPool) -> Result<(), Error> {
    let enqueuer = Arc::new(Enqueuer::start(pool, None, EnqueuerOptions::default()));
    singles(request, "Enqueuer with its defaults", move |item| {
        let enqueuer = Arc::clone(&enqueuer);
        async move {
            let receipt = enqueuer.enqueue(message(&item)?).await;
            receipt.map(drop).map_err(Error::queue)
        }
    })
    .await
}

async fn bulk(request: &Request, pool: &PgPool) -> Result<(), Error> {
    let delay = request.delay;
    batches(request, BULK, "enqueue_many of 1,000", async |items| {
        let messages = items
            .iter()
            .map(|item| message(item)?.delay(delay).map_err(Error::queue))
            .collect::<Result<Vec<_>, _>>()?;
        // One statement and one transaction per thousand messages.
        let mut connection = pool.acquire().await.map_err(Error::queue)?;
        let enqueued = enqueue_many(&mut connection, &messages).await;
        enqueued.map(drop).map_err(Error::queue)
    })
    .await
}

async fn work(request: &Request, pool: PgPool) -> Result<(), Error> {
    let work = WorkTracker::new(request);
    let counted = work.clone();
    let worker = Worker::new(pool, &OUTBOX).map_err(Error::queue)?;
    // Batching delays an item; for pick-up time the defaults are best.
    let (worker, description) = if request.best() && !request.timeline {
        let handler = Handler::batch(ITEMS_PER_CALL, move |items| {
            let counted = counted.clone();
            async move {
                for item in &items {
                    counted.started(item.read::<Item>()?.n);
                }
                Ok(vec![Verdict::Done; items.len()])
            }
        });
        let options = WorkerOptions {
            batch: 1000,
            prefetch: 4000,
            ..WorkerOptions::default()
        };
        let worker = worker
            .options(options)
            .handle(TOPIC, handler.concurrency(CONCURRENT_CALLS));
        (
            worker,
            "batch 1,000, prefetch 4,000, handler of 500 items, 2 concurrent calls",
        )
    } else {
        let handler = Handler::new(move |item| {
            let counted = counted.clone();
            async move {
                counted.started(item.read::<Item>()?.n);
                Ok(Verdict::Done)
            }
        });
        (worker.handle(TOPIC, handler), "Worker with its defaults")
    };
    let stop = CancellationToken::new();
    work.run(
        description,
        async || Ok(tokio::spawn(worker.run(stop.clone()))),
        async |running| {
            stop.cancel();
            running.await.map_err(Error::queue)?.map_err(Error::queue)
        },
    )
    .await
}
