//! Tracks what a worker handled.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::report::{Harness, now, report_ready, write_event};
use crate::{Error, Request};

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(5);

/// Item and time of its start.
type Times = Vec<(u64, u64)>;

/// Counts handler calls. Cheap to clone.
#[derive(Debug, Clone)]
pub struct WorkTracker {
    count: u64,
    handled: Arc<AtomicU64>,
    sum: Arc<AtomicU64>,
    first: Arc<AtomicU64>,
    reached: Arc<AtomicU64>,
    started: Option<Arc<Mutex<Times>>>,
}

impl WorkTracker {
    /// Nothing handled yet.
    pub fn new(request: &Request) -> Self {
        Self {
            count: request.count,
            handled: Arc::default(),
            sum: Arc::default(),
            first: Arc::default(),
            reached: Arc::default(),
            started: request.timeline.then(Arc::default),
        }
    }

    /// Call this first in a handler.
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

    /// Reports ready, waits for go, runs `start`, reports progress until the harness signals stop, runs `stop` with the
    /// result of `start`, and reports the total.
    pub async fn run<T>(
        &self,
        settings: &str,
        start: impl AsyncFnOnce() -> Result<T, Error>,
        stop: impl AsyncFnOnce(T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut harness = Harness::connect();
        report_ready(settings)?;
        harness.signal().await;
        let running = start().await?;
        let mut reported = 0;
        let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
        loop {
            tokio::select! {
                // The end of the harness means stop, too.
                () = harness.signal() => break,
                _ = tick.tick() => {
                    let handled = self.handled.load(Ordering::Relaxed);
                    if handled != reported {
                        reported = handled;
                        self.report_progress(handled)?;
                    }
                }
            }
        }
        stop(running).await?;
        let started = match &self.started {
            Some(started) => started.lock().map(|list| list.clone()).unwrap_or_default(),
            None => Vec::new(),
        };
        write_event(&json!({
            "event": "done",
            "handled": self.handled.load(Ordering::Relaxed),
            "sum": self.sum.load(Ordering::Relaxed),
            "times": started,
        }))
    }

    fn report_progress(&self, handled: u64) -> Result<(), Error> {
        // The time of the last expected item is exact, not rounded to the interval.
        let at = match self.reached.load(Ordering::Relaxed) {
            0 => now(),
            reached => reached,
        };
        let first = self.first.load(Ordering::Relaxed);
        write_event(&json!({ "event": "progress", "handled": handled, "first": first, "at": at }))
    }
}
