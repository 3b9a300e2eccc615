//! Kafka: the publisher, from the outbox until every message is settled, or a bare producer that sends the same messages
//! from memory.
//!
//! Arguments: the broker's address, then the action. Each run starts with everything prepared (rows in the outbox,
//! payloads in memory, its own topic) and ends when the last message is confirmed; for the publisher, when the outbox is
//! empty, too.

mod bare;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use postrider::breaker::Breakers;
use postrider::migrate::Migrator;
use postrider::outbox::{Message, OUTBOX, enqueue_many};
use postrider::publisher::{Publisher, PublisherOptions};
use postrider::transport::Transport;
use postrider::{Worker, WorkerOptions};
use postrider_bench_kit::Items;
use postrider_transports::PostgresTransport;
use postrider_transports::broker::Options;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use serde_json::json;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

/// Fewer than the default of `serve`: one publisher does not use more.
const CONNECTIONS: u32 = 10;
const BULK: usize = 1_000;
const TIMEOUT: Duration = Duration::from_secs(300);

/// The allocator of the program, because services run in this process.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let broker = arguments.next().context("the broker is missing")?;
    let action = arguments.next().context("the action is missing")?;
    let pool = pool(&std::env::var("DATABASE_URL")?).await?;
    if action == "setup" {
        let migrator = Migrator::new([postrider::migrations()]);
        migrator.run(&mut *pool.acquire().await?).await?;
        return Ok(());
    }
    let count: u64 = std::env::var("BENCH_COUNT")?.parse()?;
    let bytes: usize = std::env::var("BENCH_BYTES")?.parse()?;
    let topic = format!("bench.{action}.{}", uuid::Uuid::new_v4().simple());
    let local = PostgresTransport::new(pool.clone())?;
    let transport = postrider_transports::kafka::transport(&broker, 1, local, Options::default());
    // Creates the topic as the program does; it has no consumers.
    Transport::declare(&transport, &topic, "bench").await?;
    let items = Items::new(bytes);
    let seconds = match action.as_str() {
        "ours" => {
            fill(&pool, &topic, &items, count).await?;
            let worker = worker(&pool, Arc::new(transport)).await?;
            let (publisher, options) = (PublisherOptions::default(), WorkerOptions::default());
            ready(&format!(
                "claims of {}, {} calls of {} messages concurrently, {CONNECTIONS} connections",
                options.batch, publisher.concurrency, publisher.batch
            ))?;
            ours(&pool, worker).await?
        }
        "bare" => {
            let payloads = (0..count)
                .map(|n| serde_json::to_string(&items.item(n)))
                .collect::<Result<Vec<_>, _>>()?;
            let producer = bare::producer(&broker)?;
            ready("idempotent, acks=all, the library's own queue and batches")?;
            tokio::task::spawn_blocking({
                let topic = topic.clone();
                move || bare::run(&producer, &topic, &payloads)
            })
            .await??
        }
        other => bail!("unknown action {other}"),
    };
    check(&broker, &topic, count).await?;
    write_event(&json!({ "event": "done", "items": count, "seconds": seconds }))
}

async fn pool(url: &str) -> Result<PgPool> {
    Ok(postrider::internal::pool::options()
        .min_connections(CONNECTIONS)
        .max_connections(CONNECTIONS)
        .connect(url)
        .await?)
}

async fn fill(pool: &PgPool, topic: &str, items: &Items, count: u64) -> Result<()> {
    let numbers: Vec<u64> = (0..count).collect();
    for chunk in numbers.chunks(BULK) {
        let messages = chunk
            .iter()
            .map(|n| Message::new(topic, &items.item(*n)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut transaction = pool.begin().await?;
        enqueue_many(&mut transaction, &messages).await?;
        transaction.commit().await?;
    }
    sqlx::raw_sql("analyze postrider.outbox")
        .execute(pool)
        .await?;
    Ok(())
}

/// The publisher as the program runs it.
async fn worker(pool: &PgPool, transport: Arc<dyn Transport>) -> Result<Worker> {
    let breakers = Breakers::default();
    let publisher = Publisher::new(transport, &breakers, pool.clone(), &OUTBOX).await?;
    Ok(Worker::new(pool.clone(), &OUTBOX)?.handle_others(publisher.handler()))
}

async fn ours(pool: &PgPool, worker: Worker) -> Result<f64> {
    let stop = CancellationToken::new();
    let begun = Instant::now();
    let working = tokio::spawn(worker.run(stop.clone()));
    // Uses the claim index: a sequential scan would read every dead row.
    let empty = "select not exists (
        select from postrider.outbox where finished_at is null order by due, id limit 1)";
    loop {
        let is_empty: bool = sqlx::query_scalar(empty).fetch_one(pool).await?;
        if is_empty {
            break;
        }
        ensure!(
            begun.elapsed() < TIMEOUT,
            "timed out before the outbox was empty"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let seconds = begun.elapsed().as_secs_f64();
    stop.cancel();
    working.await??;
    Ok(seconds)
}

/// Checks that the broker has each message once.
async fn check(broker: &str, topic: &str, count: u64) -> Result<()> {
    let (broker, topic) = (
        broker.trim_start_matches("kafka://").to_owned(),
        topic.to_owned(),
    );
    let stored = tokio::task::spawn_blocking(move || -> Result<i64> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", broker)
            .create()?;
        let wait = Duration::from_secs(10);
        let metadata = consumer.fetch_metadata(Some(&topic), wait)?;
        let topic_metadata = metadata.topics().first().context("the topic is missing")?;
        let mut stored = 0;
        for partition in topic_metadata.partitions() {
            let (low, high) = consumer.fetch_watermarks(&topic, partition.id(), wait)?;
            stored += high - low;
        }
        Ok(stored)
    })
    .await??;
    ensure!(
        u64::try_from(stored).is_ok_and(|stored| stored == count),
        "the broker has {stored} of {count} messages"
    );
    Ok(())
}

fn ready(settings: &str) -> Result<()> {
    write_event(&json!({ "event": "ready", "settings": settings }))?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

fn write_event(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
