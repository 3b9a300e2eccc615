//! pgmq: its SQL from the crate's embedded scripts, its Rust client for every call.
//!
//! pgmq is a message queue without a worker, so the loop is ours: read a batch with a visibility
//! timeout, handle it, delete it. `pop` would be faster but loses what a crashed worker held.

use pgmq::PGMQueueExt;
use postrider_bench_kit::{Action, Error, Item, Request, WorkTracker, batches, produce, singles};
use sqlx::postgres::PgPoolOptions;
use tokio::sync::watch;
use tokio::task::JoinSet;

const QUEUE: &str = "bench";
/// Seconds for which a read hides a message.
const HIDDEN: i32 = 60;
/// Best: consumers per process and messages per read.
const CONSUMERS: usize = 2;
const READ: i32 = 1000;
const BULK: usize = 1000;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let request = Request::from_env()?;
    let connections = match request.action {
        Action::Work => CONSUMERS as u32,
        _ => request.connections(),
    };
    // Its own way to connect does not know unix sockets; its way to take a pool does not mind.
    let pool = PgPoolOptions::new()
        // All of them before the clock starts.
        .min_connections(connections)
        .max_connections(connections)
        // A round trip before each use, by default.
        .test_before_acquire(!request.best())
        .connect(&request.url)
        .await
        .map_err(Error::queue)?;
    let queue = PGMQueueExt::new_with_pool(pool).await;
    match request.action {
        Action::Setup => {
            queue
                .install_sql_from_embedded()
                .await
                .map_err(Error::queue)?;
            queue.create(QUEUE).await.map(drop).map_err(Error::queue)
        }
        Action::Singles | Action::Grouped => {
            singles(&request, "send", move |item| {
                let queue = queue.clone();
                async move { send(&queue, &item).await }
            })
            .await
        }
        Action::Bulk => {
            let delay = u32::try_from(request.delay.as_secs()).unwrap_or(u32::MAX);
            batches(&request, BULK, "send_batch of 1,000", async |items| {
                let sent = if delay == 0 {
                    queue.send_batch(QUEUE, &items).await
                } else {
                    let delay = i32::try_from(delay).unwrap_or(i32::MAX);
                    queue.send_batch_with_delay(QUEUE, &items, delay).await
                };
                sent.map(drop).map_err(Error::queue)
            })
            .await
        }
        Action::Produce => produce(&request, "send", async |item| send(&queue, &item).await).await,
        Action::Work => work(&request, &queue).await,
    }
}

async fn send(queue: &PGMQueueExt, item: &Item) -> Result<(), Error> {
    queue
        .send(QUEUE, item)
        .await
        .map(drop)
        .map_err(Error::queue)
}

async fn work(request: &Request, queue: &PGMQueueExt) -> Result<(), Error> {
    let work = WorkTracker::new(request);
    let (consumers, size, description) = if request.best() {
        (
            CONSUMERS,
            READ,
            "2 consumers, read_with_poll of 1,000 (polling every 5 ms when empty), delete of the batch",
        )
    } else {
        (
            1,
            1,
            "1 consumer, read_with_poll of 1 message, delete of 1 message",
        )
    };
    let best = request.best();
    work.run(
        description,
        async || {
            let (stop, stopped) = watch::channel(false);
            let mut loops = JoinSet::new();
            for _ in 0..consumers {
                loops.spawn(consume(
                    queue.clone(),
                    work.clone(),
                    size,
                    best,
                    stopped.clone(),
                ));
            }
            Ok((stop, loops))
        },
        async |(stop, mut loops)| {
            let _ = stop.send(true);
            while let Some(done) = loops.join_next().await {
                done.map_err(Error::queue)??;
            }
            Ok(())
        },
    )
    .await
}

async fn consume(
    queue: PGMQueueExt,
    work: Work,
    size: i32,
    best: bool,
    stopped: watch::Receiver<bool>,
) -> Result<(), Error> {
    // Long polling happens inside the server; its own default interval is 100 ms.
    let interval = best.then_some(std::time::Duration::from_millis(5));
    let timeout = Some(std::time::Duration::from_secs(1));
    while !*stopped.borrow() {
        let messages = queue
            .read_batch_with_poll::<Item>(QUEUE, HIDDEN, size, timeout, interval)
            .await
            .map_err(Error::queue)?
            .unwrap_or_default();
        let mut ids = Vec::with_capacity(messages.len());
        for message in messages {
            work.started(message.message.n);
            ids.push(message.msg_id);
        }
        match ids.as_slice() {
            [] => {}
            [id] => drop(queue.delete(QUEUE, *id).await.map_err(Error::queue)?),
            ids => drop(queue.delete_batch(QUEUE, ids).await.map_err(Error::queue)?),
        }
    }
    Ok(())
}
