//! Worker options. The defaults are fast without tuning.

use std::time::Duration;

use crate::conn::MIN_CALL_TIMEOUT;
use crate::{Error, Result};

/// Options of a [`Worker`](super::Worker).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// Name shown to operators, e.g. host and process id.
    pub name: String,
    /// Duration of a lease; a lost worker is noticed after this long.
    pub lease: Duration,
    /// Maximum number of items per claim and per settling transaction.
    pub batch: u32,
    /// Maximum number of claimed items that wait in memory for a handler. The worker prefetches less while handlers are
    /// slow.
    pub prefetch: usize,
    /// Approximate maximum of payload bytes held in memory.
    pub prefetch_bytes: usize,
    /// Shortest interval between two polls of an empty table.
    pub poll_min: Duration,
    /// Longest interval between two polls of an empty table.
    pub poll_max: Duration,
    /// Interval between two searches for items whose worker was lost.
    pub rescue_every: Duration,
    /// How long running handlers may continue after a stop.
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
            return Err(Error::invalid(
                "lease",
                "must be between 100 ms and one day",
            ));
        }
        if self.batch == 0 || self.batch > 10_000 {
            return Err(Error::invalid("batch", "must be between 1 and 10000"));
        }
        if self.prefetch == 0 || self.prefetch_bytes == 0 {
            return Err(Error::invalid("prefetch", "must be at least 1"));
        }
        if self.poll_min.is_zero() || self.poll_max < self.poll_min {
            return Err(Error::invalid(
                "poll",
                "poll_min must be greater than zero and poll_max at least poll_min",
            ));
        }
        if self.rescue_every.is_zero() {
            return Err(Error::invalid("rescue_every", "must be greater than zero"));
        }
        Ok(())
    }

    /// Leases are renewed after a third of their duration.
    pub(super) fn renew_after(&self) -> Duration {
        self.lease / 3
    }

    /// Deadline of a database call: after this long its leases are lost anyway.
    pub(super) fn call_timeout(&self) -> Duration {
        self.lease.max(MIN_CALL_TIMEOUT)
    }

    /// The watchdog stops a handler this long before its lease expires.
    pub(super) fn margin(&self) -> Duration {
        (self.lease / 10).min(Duration::from_secs(5))
    }
}
