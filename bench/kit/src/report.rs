//! Communication with the harness: events as JSON lines, signals as input lines.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::Error;

/// Microseconds since 1970. Adapters and harness run on one machine, so they share a clock.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

/// Writes one event and flushes it.
pub(crate) fn write_event(value: &Value) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// Reports that the adapter is connected, and its settings.
pub(crate) fn report_ready(settings: &str) -> Result<(), Error> {
    write_event(&json!({ "event": "ready", "settings": settings }))
}

/// Signals from the harness, one per line.
pub(crate) struct Harness {
    lines: mpsc::UnboundedReceiver<()>,
}

impl Harness {
    /// Starts a thread that reads standard input, so that nothing waits for it at the end.
    pub(crate) fn connect() -> Self {
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

    /// Waits for the next signal: the first means go, the second stop. The end of the harness is a signal, too.
    pub(crate) async fn signal(&mut self) {
        let _ = self.lines.recv().await;
    }
}

/// Reports how long enqueuing took.
pub(crate) fn report_enqueued(items: u64, took: Duration) -> Result<(), Error> {
    write_event(&json!({ "event": "done", "items": items, "seconds": took.as_secs_f64() }))
}
