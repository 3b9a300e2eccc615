//! The three ways in which items are enqueued, apart from the call itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::report::{Harness, enqueued, line, now, ready};
use crate::{Error, Item, Items, Order};

/// One call per item, from as many clients at once as ordered.
pub async fn singles<F, R>(order: &Order, settings: &str, enqueue: F) -> Result<(), Error>
where
    F: Fn(Item) -> R + Clone + Send + 'static,
    R: Future<Output = Result<(), Error>> + Send,
{
    let items = Arc::new(Items::of(order.bytes));
    let next = Arc::new(AtomicU64::new(0));
    let mut harness = Harness::listen();
    ready(settings)?;
    harness.next().await;
    let begun = Instant::now();
    let mut clients: JoinSet<Result<(), Error>> = JoinSet::new();
    for _ in 0..order.clients.max(1) {
        let (items, next, enqueue) = (Arc::clone(&items), Arc::clone(&next), enqueue.clone());
        let count = order.count;
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
    enqueued(order.count, begun.elapsed())
}

/// One call per `size` items. Items are made before the clock starts.
pub async fn batches<F, R>(
    order: &Order,
    size: usize,
    settings: &str,
    mut enqueue: F,
) -> Result<(), Error>
where
    F: FnMut(Vec<Item>) -> R,
    R: Future<Output = Result<(), Error>>,
{
    let items = Items::of(order.bytes);
    let mut harness = Harness::listen();
    ready(settings)?;
    harness.next().await;
    let mut took = Duration::ZERO;
    let mut first = 0;
    while first < order.count {
        let last = order.count.min(first + size as u64);
        let batch: Vec<Item> = (first..last).map(|n| items.item(n)).collect();
        let begun = Instant::now();
        enqueue(batch).await?;
        took += begun.elapsed();
        first = last;
    }
    enqueued(order.count, took)
}

/// One call per item at a steady rate; says when each returned.
pub async fn produce<F, R>(order: &Order, settings: &str, mut enqueue: F) -> Result<(), Error>
where
    F: FnMut(Item) -> R,
    R: Future<Output = Result<(), Error>>,
{
    let items = Items::of(order.bytes);
    let mut harness = Harness::listen();
    ready(settings)?;
    harness.next().await;
    let mut tick = tokio::time::interval(
        Duration::from_secs(1) / u32::try_from(order.rate.max(1)).unwrap_or(1),
    );
    let mut times = Vec::new();
    for n in 0..order.count {
        tick.tick().await;
        enqueue(items.item(n)).await?;
        times.push((n, now()));
    }
    line(&json!({ "event": "done", "items": order.count, "times": times }))
}
