//! What an adapter says, one JSON document a line, and what it is told.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::Error;

/// Microseconds since 1970. Adapters and harness share one machine, so their clocks agree.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// Writes one line at once.
pub(crate) fn line(value: &Value) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Says that everything is connected, and with which settings, in words.
pub(crate) fn ready(settings: &str) -> Result<(), Error> {
    line(&json!({ "event": "ready", "settings": settings }))
}

/// What the harness says, line by line.
pub(crate) struct Harness {
    lines: mpsc::UnboundedReceiver<()>,
}

impl Harness {
    /// Starts to listen. A thread of its own reads, so that nothing waits for it at the end.
    pub(crate) fn listen() -> Self {
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lines() {
                if line.is_err() || sender.send(()).is_err() {
                    break;
                }
            }
        });
        Self { lines }
    }

    /// Waits for the next word, which is go or stop by its place; the end of the harness counts.
    pub(crate) async fn next(&mut self) {
        let _ = self.lines.recv().await;
    }
}

/// Says how long enqueuing took.
pub(crate) fn enqueued(items: u64, took: Duration) -> Result<(), Error> {
    line(&json!({ "event": "done", "items": items, "seconds": took.as_secs_f64() }))
}
