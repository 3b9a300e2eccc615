//! How a worker works. The defaults are fast for somebody who sets nothing.

use std::time::Duration;

use crate::conn::MIN_CALL_TIMEOUT;
use crate::{Error, Result};

/// A worker's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// A name for people, e.g. host and process.
    pub name: String,
    /// How long a lease lasts; a worker that is lost is noticed after this long.
    pub lease: Duration,
    /// At most so many items per claim, and per settling transaction.
    pub batch: u32,
    /// At most so many claimed items wait in memory for a handler. The worker uses less while handlers are slow.
    pub prefetch: usize,
    /// At most about so many bytes of payload are held.
    pub prefetch_bytes: usize,
    /// The shortest wait between two looks at an empty table.
    pub poll_min: Duration,
    /// The longest.
    pub poll_max: Duration,
    /// How often to look for items whose worker was lost.
    pub rescue_every: Duration,
    /// How long running handlers may go on after a stop.
    pub grace: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            name: process_name(),
            lease: Duration::from_secs(30),
            batch: 500,
            prefetch: 2_000,
            prefetch_bytes: 32 * 1024 * 1024,
            poll_min: Duration::from_millis(50),
            poll_max: Duration::from_secs(1),
            rescue_every: Duration::from_secs(1),
            grace: Duration::from_secs(20),
        }
    }
}

/// Host and process id, such as `web-1:7634`.
fn process_name() -> String {
    let host = std::env::var("HOSTNAME")
        .or_else(|_| std::fs::read_to_string("/proc/sys/kernel/hostname"))
        .unwrap_or_default();
    let host = match host.trim() {
        "" => "localhost",
        host => host,
    };
    format!("{host}:{}", std::process::id())
}

impl WorkerOptions {
    pub(super) fn validate(&self) -> Result<()> {
        if self.lease < Duration::from_millis(100) || self.lease > Duration::from_secs(86_400) {
            return Err(Error::invalid("lease", "from 100 ms to a day"));
        }
        if self.batch == 0 || self.batch > 10_000 {
            return Err(Error::invalid("batch", "from 1 to 10000"));
        }
        if self.prefetch == 0 || self.prefetch_bytes == 0 {
            return Err(Error::invalid("prefetch", "at least 1"));
        }
        if self.poll_min.is_zero() || self.poll_max < self.poll_min {
            return Err(Error::invalid(
                "poll",
                "poll_min above 0, poll_max not below poll_min",
            ));
        }
        if self.rescue_every.is_zero() {
            return Err(Error::invalid("rescue_every", "more than nothing"));
        }
        Ok(())
    }

    /// A lease is renewed when a third of it has passed.
    pub(super) fn renew_after(&self) -> Duration {
        self.lease / 3
    }

    /// A call that the database has not answered for so long is given up: its leases are lost by then.
    pub(super) fn patience(&self) -> Duration {
        self.lease.max(MIN_CALL_TIMEOUT)
    }

    /// The watchdog stops a handler this long before its lease runs out.
    pub(super) fn margin(&self) -> Duration {
        (self.lease / 10).min(Duration::from_secs(5))
    }
}
