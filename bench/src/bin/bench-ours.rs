//! Our own engine under the benchmark: the outbox and a worker, through the crate's public API.

use std::sync::{Arc, Mutex, PoisonError};

use postrider::migrate::Migrator;
use postrider::outbox::{Enqueuer, EnqueuerOptions, Message, OUTBOX, enqueue, enqueue_many};
use postrider::wake::Waker;
use postrider::{Handler, Verdict, Worker, WorkerOptions};
use postrider_bench_kit::{Action, Error, Item, Order, Work, batches, produce, singles};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

const TOPIC: &str = "bench";
const BULK: usize = 1000;
/// Best: items per call of the handler, and calls at once.
const CALL: usize = 500;
const CALLS: usize = 2;

fn main() -> Result<(), Error> {
    let order = Order::from_env()?;
    let runtime = match order.action {
        // Clients that only wait for the database share one thread, as pgbench's do: waking another costs more than the call.
        Action::Singles => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().enable_all().build(),
    };
    runtime
        .map_err(|error| Error::queue(sqlx::Error::Io(error)))?
        .block_on(run(order))
}

async fn run(order: Order) -> Result<(), Error> {
    let connections = match order.action {
        Action::Work | Action::Grouped => 10,
        // One more for the wake-up.
        Action::Produce => 2,
        _ => order.connections(),
    };
    let pool = PgPoolOptions::new()
        // All of them before the clock starts.
        .min_connections(connections)
        .max_connections(connections)
        // A round trip before each use, by default.
        .test_before_acquire(!order.best())
        .connect(&order.url)
        .await
        .map_err(Error::queue)?;
    match order.action {
        Action::Setup => setup(&pool).await,
        Action::Singles => {
            // Each client keeps its connection, as pgbench's do: giving one back to the pool is a round trip of sqlx's.
            let idle = Arc::new(Mutex::new(connect(&order, connections).await?));
            singles(
                &order,
                "enqueue on a connection of one's own",
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
        Action::Grouped => grouped(&order, &pool).await,
        Action::Bulk => bulk(&order, &pool).await,
        Action::Produce => {
            let waker = Waker::new(pool.clone());
            produce(&order, "enqueue, wake after commit", async |item| {
                one(&pool, &item).await?;
                waker.wake(&OUTBOX);
                Ok(())
            })
            .await
        }
        Action::Work => work(&order, pool).await,
    }
}

async fn connect(order: &Order, count: u32) -> Result<Vec<PgConnection>, Error> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(
            PgConnection::connect(&order.url)
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

/// One message without other writes is one statement, which is its own transaction.
async fn one(pool: &PgPool, item: &Item) -> Result<(), Error> {
    let mut connection = pool.acquire().await.map_err(Error::queue)?;
    enqueue(&mut connection, &message(item)?)
        .await
        .map(drop)
        .map_err(Error::queue)
}

async fn grouped(order: &Order, pool: &PgPool) -> Result<(), Error> {
    let enqueuer = Arc::new(Enqueuer::start(pool, None, EnqueuerOptions::default()));
    singles(order, "Enqueuer with its defaults", move |item| {
        let enqueuer = Arc::clone(&enqueuer);
        async move {
            let receipt = enqueuer.enqueue(message(&item)?).await;
            receipt.map(drop).map_err(Error::queue)
        }
    })
    .await
}

async fn bulk(order: &Order, pool: &PgPool) -> Result<(), Error> {
    let delay = order.delay;
    batches(order, BULK, "enqueue_many of 1,000", async |items| {
        let messages = items
            .iter()
            .map(|item| message(item)?.delay(delay).map_err(Error::queue))
            .collect::<Result<Vec<_>, _>>()?;
        // A thousand are one statement, which is a transaction by itself.
        let mut connection = pool.acquire().await.map_err(Error::queue)?;
        let enqueued = enqueue_many(&mut connection, &messages).await;
        enqueued.map(drop).map_err(Error::queue)
    })
    .await
}

async fn work(order: &Order, pool: PgPool) -> Result<(), Error> {
    let work = Work::new(order);
    let counted = work.clone();
    let worker = Worker::new(pool, &OUTBOX).map_err(Error::queue)?;
    // A batch of calls makes an item wait for its fellows; for pick-up time the defaults are best.
    let (worker, words) = if order.best() && !order.timeline {
        let handler = Handler::batch(CALL, move |items| {
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
            .handle(TOPIC, handler.concurrency(CALLS));
        (
            worker,
            "batch 1,000, prefetch 4,000, handler of 500 items, 2 calls at once",
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
        words,
        async || Ok(tokio::spawn(worker.run(stop.clone()))),
        async |running| {
            stop.cancel();
            running.await.map_err(Error::queue)?.map_err(Error::queue)
        },
    )
    .await
}
