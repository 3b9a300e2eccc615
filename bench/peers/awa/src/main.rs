//! Awa, with its own worker runtime and its default queue storage.

use std::time::Duration;

use awa::model::insert::params_with;
use awa::{
    Client, InsertOpts, JobArgs, JobContext, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig,
};
use postrider_bench_kit::{Action, Error, Item, Request, WorkTracker, batches, produce, singles};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "bench";
const BULK: usize = 1000;

#[derive(Serialize, Deserialize, JobArgs)]
struct Job {
    #[serde(flatten)]
    item: Item,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let request = Request::from_env()?;
    let connections = match request.action {
        Action::Work => 20,
        Action::Setup => 4,
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
    match request.action {
        Action::Setup => awa::migrations::run(&pool).await.map_err(Error::queue),
        Action::Singles | Action::Grouped => {
            singles(&request, "insert_with", move |item| {
                let pool = pool.clone();
                async move { insert(&pool, item).await }
            })
            .await
        }
        Action::Bulk => bulk(&request, &pool).await,
        Action::Produce => {
            produce(&request, "insert_with", async |item| {
                insert(&pool, item).await
            })
            .await
        }
        Action::Work => work(&request, pool).await,
    }
}

fn options() -> InsertOpts {
    InsertOpts {
        queue: QUEUE.to_owned(),
        ..InsertOpts::default()
    }
}

async fn insert(pool: &PgPool, item: Item) -> Result<(), Error> {
    awa::insert_with(pool, &Job { item }, options())
        .await
        .map(drop)
        .map_err(Error::queue)
}

async fn bulk(request: &Request, pool: &PgPool) -> Result<(), Error> {
    let schema = QueueStorage::active_schema(pool)
        .await
        .map_err(Error::queue)?;
    let mut config = QueueStorageConfig::default();
    if let Some(schema) = schema {
        config.schema = schema;
    }
    let storage = QueueStorage::new(config).map_err(Error::queue)?;
    let delay = chrono::Duration::from_std(request.delay).map_err(Error::queue)?;
    let due = (!request.delay.is_zero()).then(|| chrono::Utc::now() + delay);
    batches(request, BULK, "enqueue_params_copy of 1,000", async |items| {
        let jobs = items
            .into_iter()
            .map(|item| {
                let options = InsertOpts {
                    run_at: due,
                    ..options()
                };
                params_with(&Job { item }, options)
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::queue)?;
        storage
            .enqueue_params_copy(pool, &jobs)
            .await
            .map(drop)
            .map_err(Error::queue)
    })
    .await
}

async fn work(request: &Request, pool: PgPool) -> Result<(), Error> {
    let work = WorkTracker::new(request);
    let counted = work.clone();
    // As in its own throughput benchmark: many slots, no deadline (which is what allows the
    // compact claims), a short poll.
    let (config, description) = if request.best() {
        (
            QueueConfig {
                max_workers: 1024,
                claim_batch_size: 512,
                poll_interval: Duration::from_millis(10),
                deadline_duration: Duration::ZERO,
                ..QueueConfig::default()
            },
            "1,024 workers, claims of 512, no deadline, poll 10 ms",
        )
    } else {
        (QueueConfig::default(), "QueueConfig::default()")
    };
    let client = Client::builder(pool)
        .queue(QUEUE, config)
        .register::<Job, _, _>(move |job: Job, _context: &JobContext| {
            counted.started(job.item.n);
            async { Ok(JobResult::Completed) }
        })
        .build()
        .map_err(Error::queue)?;
    work.run(
        description,
        async || client.start().await.map_err(Error::queue),
        async |()| {
            client.shutdown(Duration::from_secs(10)).await;
            Ok(())
        },
    )
    .await
}
