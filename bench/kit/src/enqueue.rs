//! The three ways to enqueue items, apart from the call itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::report::{Harness, now, report_enqueued, report_ready, write_event};
use crate::{Error, Item, Items, Request};

/// One call per item, from concurrent clients.
pub async fn singles<F, R>(request: &Request, settings: &str, enqueue: F) -> Result<(), Error>
where
    F: Fn(Item) -> R + Clone + Send + 'static,
    R: Future<Output = Result<(), Error>> + Send,
{
    let items = Arc::new(Items::new(request.bytes));
    let next = Arc::new(AtomicU64::new(0));
    let mut harness = Harness::connect();
    report_ready(settings)?;
    harness.signal().await;
    let begun = Instant::now();
    let mut clients: JoinSet<Result<(), Error>> = JoinSet::new();
    for _ in 0..request.clients.max(1) {
        let (items, next, enqueue) = (Arc::clone(&items), Arc::clone(&next), enqueue.clone());
        let count = request.count;
        clients.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok(());
                }
                enqueue(items.item(n)).await?;
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(Error::queue)??;
    }
    report_enqueued(request.count, begun.elapsed())
}

/// One call per `size` items. Creating the items is not timed.
pub async fn batches<F, R>(
    request: &Request,
    size: usize,
    settings: &str,
    mut enqueue: F,
) -> Result<(), Error>
where
    F: FnMut(Vec<Item>) -> R,
    R: Future<Output = Result<(), Error>>,
{
    let items = Items::new(request.bytes);
    let mut harness = Harness::connect();
    report_ready(settings)?;
    harness.signal().await;
    let mut took = Duration::ZERO;
    let mut first = 0;
    while first < request.count {
        let last = request.count.min(first + size as u64);
        let batch: Vec<Item> = (first..last).map(|n| items.item(n)).collect();
        let begun = Instant::now();
        enqueue(batch).await?;
        took += begun.elapsed();
        first = last;
    }
    report_enqueued(request.count, took)
}

/// One call per item at a steady rate; reports when each returned.
pub async fn produce<F, R>(request: &Request, settings: &str, mut enqueue: F) -> Result<(), Error>
where
    F: FnMut(Item) -> R,
    R: Future<Output = Result<(), Error>>,
{
    let items = Items::new(request.bytes);
    let mut harness = Harness::connect();
    report_ready(settings)?;
    harness.signal().await;
    let mut tick = tokio::time::interval(
        Duration::from_secs(1) / u32::try_from(request.rate.max(1)).unwrap_or(1),
    );
    let mut times = Vec::new();
    for n in 0..request.count {
        tick.tick().await;
        enqueue(items.item(n)).await?;
        times.push((n, now()));
    }
    write_event(&json!({ "event": "done", "items": request.count, "times": times }))
}
