//! A worker's account of what it handled.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::report::{Harness, line, now, ready};
use crate::{Error, Order};

/// How often progress is told.
const TELL: Duration = Duration::from_millis(5);

/// Which item started when.
type Times = Vec<(u64, u64)>;

/// Counts what the handlers were given. Cheap to clone into them.
#[derive(Debug, Clone)]
pub struct Work {
    count: u64,
    handled: Arc<AtomicU64>,
    sum: Arc<AtomicU64>,
    first: Arc<AtomicU64>,
    reached: Arc<AtomicU64>,
    started: Option<Arc<Mutex<Times>>>,
}

impl Work {
    /// An empty account.
    pub fn new(order: &Order) -> Self {
        Self {
            count: order.count,
            handled: Arc::default(),
            sum: Arc::default(),
            first: Arc::default(),
            reached: Arc::default(),
            started: order.timeline.then(Arc::default),
        }
    }

    /// To be called first thing in a handler.
    pub fn started(&self, n: u64) {
        if let Some(started) = &self.started
            && let Ok(mut started) = started.lock()
        {
            started.push((n, now()));
        }
        self.sum.fetch_add(n, Ordering::Relaxed);
        let before = self.handled.fetch_add(1, Ordering::Relaxed);
        if before == 0 {
            self.first.store(now(), Ordering::Relaxed);
        }
        if before + 1 == self.count {
            self.reached.store(now(), Ordering::Relaxed);
        }
    }

    /// Says ready, waits for go, runs `start`, tells progress until the harness says stop, runs
    /// `stop` with what `start` returned, and reports.
    pub async fn run<T>(
        &self,
        settings: &str,
        start: impl AsyncFnOnce() -> Result<T, Error>,
        stop: impl AsyncFnOnce(T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut harness = Harness::listen();
        ready(settings)?;
        harness.next().await;
        let running = start().await?;
        let mut told = 0;
        let mut tick = tokio::time::interval(TELL);
        loop {
            tokio::select! {
                // Anything, and also the end of the harness, means stop.
                () = harness.next() => break,
                _ = tick.tick() => {
                    let handled = self.handled.load(Ordering::Relaxed);
                    if handled != told {
                        told = handled;
                        self.tell(handled)?;
                    }
                }
            }
        }
        stop(running).await?;
        let started = match &self.started {
            Some(started) => started.lock().map(|list| list.clone()).unwrap_or_default(),
            None => Vec::new(),
        };
        line(&json!({
            "event": "done",
            "handled": self.handled.load(Ordering::Relaxed),
            "sum": self.sum.load(Ordering::Relaxed),
            "times": started,
        }))
    }

    fn tell(&self, handled: u64) -> Result<(), Error> {
        // The moment at which the last expected item came is told exactly, not to the tick.
        let at = match self.reached.load(Ordering::Relaxed) {
            0 => now(),
            reached => reached,
        };
        let first = self.first.load(Ordering::Relaxed);
        line(&json!({ "event": "progress", "handled": handled, "first": first, "at": at }))
    }
}
