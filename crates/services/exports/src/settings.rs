//! The configuration section `[exports]`.

use std::{fmt, time::Duration};

use postrider::{
    RetryPolicy,
    internal::settings::{BreakerOverride, Lease, address},
    retry::{Backoff, PolicyError},
};
use serde::Deserialize;
use url::Url;

use crate::source::Template;

/// Maximum delay between two attempts.
const MAX_DELAY: Duration = Duration::from_secs(300);

/// Fraction by which a delay may be shorter or longer.
const JITTER: f64 = 0.2;

/// `[exports]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Maximum number of files generated concurrently, each with a connection to the source.
    pub concurrency: u32,
    /// The database that the rows come from.
    pub source: SourceSettings,
    /// Worker settings.
    pub worker: WorkerSettings,
    /// Retry policy.
    pub retry: RetrySettings,
    /// File settings.
    pub file: FileSettings,
    /// Finalizer settings.
    pub finalizer: FinalizerSettings,
    /// Breaker settings that differ from the common ones.
    pub breaker: BreakerOverride,
}

/// `[exports.source]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSettings {
    /// The database's address; if absent, the program's own database.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// The query, with `$1` (index key), `$2` (date as yyyymmdd) and `$3` (indicator).
    pub query: String,
    /// Whether a file may have no rows.
    pub allow_empty: bool,
}

/// `[exports.worker]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerSettings {
    /// Claim settings.
    pub poll: PollSettings,
    /// Lease settings.
    pub lease: Lease,
}

/// `[exports.worker.poll]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PollSettings {
    /// Maximum number of inputs per claim.
    pub batch_size: u32,
}

/// `[exports.retry]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetrySettings {
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// Delay after the first failure; doubles with each further one.
    pub base_delay_ms: u64,
}

/// `[exports.file]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSettings {
    /// Whether files are compressed.
    pub gzip: bool,
    /// Reuse of existing files.
    pub reuse: ReuseSettings,
}

/// `[exports.file.reuse]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReuseSettings {
    /// Whether existing files are reused.
    pub enabled: bool,
    /// Minimum age in days of the effective date.
    pub days: i32,
}

/// `[exports.finalizer]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinalizerSettings {
    /// Interval between two runs.
    pub interval_ms: u64,
}

impl Settings {
    /// The retry policy.
    pub fn policy(&self) -> Result<RetryPolicy, PolicyError> {
        let backoff = Backoff::Exponential {
            initial: Duration::from_millis(self.retry.base_delay_ms),
            multiplier: 2.0,
            cap: MAX_DELAY,
            jitter: JITTER,
        };
        RetryPolicy::new(backoff, self.retry.max_attempts)
    }

    /// Interval between two runs of the finalizer.
    #[must_use]
    pub const fn finalizer_interval(&self) -> Duration {
        Duration::from_millis(self.finalizer.interval_ms)
    }

    /// Invalid values, as pairs of key and problem.
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        match self.policy() {
            Ok(_) => {}
            Err(error @ PolicyError::Attempts(_)) => {
                found.push(("exports.retry.max_attempts", error.to_string()));
            }
            Err(error) => found.push(("exports.retry.base_delay_ms", error.to_string())),
        }
        let mut range = |key, value: i64, from: i64, to: i64| {
            if !(from..=to).contains(&value) {
                found.push((key, format!("must be between {from} and {to}")));
            }
        };
        range("exports.concurrency", self.concurrency.into(), 1, 500);
        range(
            "exports.worker.poll.batch_size",
            self.worker.poll.batch_size.into(),
            1,
            5_000,
        );
        range(
            "exports.file.reuse.days",
            self.file.reuse.days.into(),
            0,
            36_500,
        );
        let interval = i64::try_from(self.finalizer.interval_ms).unwrap_or(i64::MAX);
        range("exports.finalizer.interval_ms", interval, 10, 86_400_000);
        if let Some(wrong) = self.worker.lease.contradiction() {
            found.push(("exports.worker.lease.seconds", wrong));
        }
        if let Err(error) = Template::parse(&self.source.query) {
            found.push(("exports.source.query", error.to_string()));
        }
        if let Some(url) = &self.source.url
            && !matches!(url.scheme(), "postgres" | "postgresql")
        {
            found.push((
                "exports.source.url",
                "must begin with postgres://".to_owned(),
            ));
        }
        found
    }
}

impl fmt::Debug for SourceSettings {
    /// Without the address, which may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceSettings")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}
