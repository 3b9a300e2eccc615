//! apalis with its PostgreSQL storage.

use std::time::Duration;

use apalis::prelude::*;
use apalis_postgres::{Config, PostgresStorage};
use futures::stream;
use postrider_bench_kit::{Action, Error, Item, Request, WorkTracker, batches, produce, singles};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::watch;
use tokio::task::LocalSet;

const QUEUE: &str = "bench";
const BULK: usize = 1000;
/// Best: tasks per fetch.
const FETCH: usize = 500;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let request = Request::from_env()?;
    let connections = match request.action {
        Action::Work => 20,
        _ => request.connections(),
    };
    let pool = PgPoolOptions::new()
        // All of them before the clock starts.
        .min_connections(connections)
        .max_connections(connections)
        // A round trip before each use, by default.
        .test_before_acquire(!request.best())
        .connect(&request.url)
        .await
        .map_err(Error::queue)?;
    let storage: PostgresStorage<Item> =
        PostgresStorage::new(&pool).with_config(Config::default().queue(QUEUE));
    match request.action {
        Action::Setup => PostgresStorage::setup(&pool).await.map_err(Error::queue),
        Action::Singles | Action::Grouped => {
            singles(&request, "push", move |item| {
                let mut storage = storage.clone();
                async move { storage.push(item).await.map_err(Error::queue) }
            })
            .await
        }
        Action::Bulk => {
            let delay = request.delay;
            batches(&request, BULK, "push_all of 1,000", async |items| {
                let mut storage = storage.clone();
                let tasks = items.into_iter().map(|item| {
                    let task = TaskBuilder::new(item);
                    if delay.is_zero() {
                        task
                    } else {
                        task.run_after(delay)
                    }
                    .build()
                });
                storage
                    .push_all(stream::iter(tasks))
                    .await
                    .map_err(Error::queue)
            })
            .await
        }
        Action::Produce => {
            produce(&request, "push", async |item| {
                storage.clone().push(item).await.map_err(Error::queue)
            })
            .await
        }
        Action::Work => LocalSet::new().run_until(work(&request, &pool)).await,
    }
}

async fn handle(item: Item, work: Data<WorkTracker>) -> Result<(), BoxDynError> {
    work.started(item.n);
    Ok(())
}

async fn work(request: &Request, pool: &PgPool) -> Result<(), Error> {
    let work = WorkTracker::new(request);
    let description = if request.best() {
        "batch_size 500, lock_tasks off, heartbeat_interval 100 ms, LISTEN, tasks spawned"
    } else {
        "Config::default(), LISTEN, one task at a time"
    };
    let (name, best) = (request.name.clone(), request.best());
    work.run(
        description,
        async || {
            let (stop, mut stopped) = watch::channel(false);
            let signal = async move {
                let _ = stopped.changed().await;
                Ok::<(), std::io::Error>(())
            };
            let config = Config::default().queue(QUEUE);
            let (pool, work) = (pool.clone(), work.clone());
            // Its future cannot be sent between threads; the tasks that it spawns can.
            let running = tokio::task::spawn_local(async move {
                let ended = if best {
                    let config = config
                        .batch_size(FETCH)
                        .lock_tasks(false)
                        // The last completions wait for the next heartbeat; without results
                        // persisted, no completion would be written at all.
                        .heartbeat_interval(Duration::from_millis(100));
                    let storage: PostgresStorage<Item> =
                        PostgresStorage::new(&pool).with_config(config);
                    WorkerBuilder::new(name)
                        .backend(storage.with_pubsub())
                        .data(work)
                        .parallelize(tokio::spawn)
                        .build(handle)
                        .run_until(signal)
                        .await
                } else {
                    let storage: PostgresStorage<Item> =
                        PostgresStorage::new(&pool).with_config(config);
                    WorkerBuilder::new(name)
                        .backend(storage.with_pubsub())
                        .data(work)
                        .build(handle)
                        .run_until(signal)
                        .await
                };
                ended.map_err(Error::queue)
            });
            Ok((stop, running))
        },
        async |(stop, running)| {
            let _ = stop.send(true);
            running.await.map_err(Error::queue)?
        },
    )
    .await
}
