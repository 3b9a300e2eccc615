//! River's Rust client, on the same schema as the Go one.

use std::time::Duration;

use postrider_bench_kit::{Action, Error, Item, Request, WorkTracker, batches, produce, singles};
use riverqueue::jiff::{SignedDuration, Timestamp};
use riverqueue::migrate::PostgresMigrator;
use riverqueue::{
    BoxError, Client, InsertOpts, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const BULK: usize = 1000;

#[derive(Clone, Debug, Serialize, Deserialize, JobArgs)]
#[river(kind = "bench")]
struct Args {
    #[serde(flatten)]
    item: Item,
}

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
    match request.action {
        Action::Setup => {
            let migrator = PostgresMigrator::new(pool);
            migrator.migrate_up().await.map(drop).map_err(Error::queue)
        }
        Action::Singles | Action::Grouped => {
            let client = client(pool)?;
            singles(&request, "insert", move |item| {
                let client = client.clone();
                async move { insert(&client, item).await }
            })
            .await
        }
        Action::Bulk => {
            let client = client(pool)?;
            let delay = SignedDuration::try_from(request.delay).map_err(Error::queue)?;
            let options = if request.delay.is_zero() {
                InsertOpts::default()
            } else {
                InsertOpts::default().with_scheduled_at(Timestamp::now() + delay)
            };
            batches(&request, BULK, "insert_many of 1,000", async |items| {
                let jobs = items
                    .into_iter()
                    .map(|item| (Args { item }, options.clone()));
                client
                    .insert_many(jobs)
                    .await
                    .map(drop)
                    .map_err(Error::queue)
            })
            .await
        }
        Action::Produce => {
            // A client that notifies as often as a best worker fetches.
            let client = Client::builder(pool)
                .fetch_cooldown(Duration::from_millis(1))
                .build()
                .map_err(Error::queue)?;
            produce(&request, "insert, fetch_cooldown 1 ms", async |item| {
                insert(&client, item).await
            })
            .await
        }
        Action::Work => work(&request, pool).await,
    }
}

fn client(pool: PgPool) -> Result<Client, Error> {
    Client::builder(pool).build().map_err(Error::queue)
}

async fn insert(client: &Client, item: Item) -> Result<(), Error> {
    client
        .insert(Args { item })
        .await
        .map(drop)
        .map_err(Error::queue)
}

async fn work(request: &Request, pool: PgPool) -> Result<(), Error> {
    let work = WorkTracker::new(request);
    let counted = work.clone();
    let mut workers = Workers::new();
    workers
        .add_fn(move |_context: WorkContext, job: Job<Args>| {
            counted.started(job.args.item.n);
            async { Ok::<_, BoxError>(WorkOutcome::Complete) }
        })
        .map_err(Error::queue)?;
    let (builder, description) = if request.best() {
        (
            Client::builder(pool)
                .fetch_cooldown(Duration::from_millis(1))
                .queue(
                    "default",
                    QueueConfig::new(2000).with_fetch_poll_interval(Duration::from_millis(100)),
                ),
            "2,000 workers, fetch_cooldown 1 ms, fetch_poll_interval 100 ms",
        )
    } else {
        (
            Client::builder(pool).queue("default", QueueConfig::new(100)),
            "100 workers, timing defaults",
        )
    };
    let client = builder.workers(workers).build().map_err(Error::queue)?;
    work.run(
        description,
        async || client.start().map_err(Error::queue),
        async |mut run| run.stop().await.map_err(Error::queue),
    )
    .await
}
