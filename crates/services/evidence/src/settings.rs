//! The configuration section `[evidence]`.

mod delay_range;
mod notify;

use std::{fmt, time::Duration};

use bytesize::ByteSize;
use postrider::{
    RetryPolicy,
    internal::settings::{BreakerOverride, Lease, address, not_http, unless_empty},
    retry::{Backoff, PolicyError},
};
use postrider_web::http_client::Endpoint;
use serde::Deserialize;
use url::Url;

pub use delay_range::DelayRange;
pub use notify::Notify;

/// `[evidence]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Maximum number of concurrent calls to the Case API.
    pub concurrency: usize,
    /// The Case API.
    pub case_api: CaseApi,
    /// Retry policy.
    pub retry: Retry,
    /// Retry scheduler.
    pub scheduler: Scheduler,
    /// The second notification.
    pub n2: N2,
    /// Lease settings.
    pub lease: Lease,
    /// Receivers of notifications.
    pub notify: Notify,
    /// Limits of uploads.
    pub ingest: Ingest,
    /// Breaker settings that differ from the common ones.
    pub breaker: BreakerOverride,
}

/// `[evidence.case_api]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseApi {
    /// The API's address; if absent, the built-in API is used.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Sent as a bearer token.
    #[serde(deserialize_with = "unless_empty")]
    pub token: Option<String>,
    /// Deadline of a call.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// Whether to look an artifact up before it is sent again, for an API whose PUT isn't idempotent.
    pub look_up: bool,
}

/// `[evidence.retry]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Maximum number of attempts, including the first.
    pub max_attempts: u32,
    /// Delays between attempts.
    pub backoff: BackoffSettings,
}

/// `[evidence.retry.backoff]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackoffSettings {
    /// How delays grow.
    pub strategy: Strategy,
    /// The first delay.
    #[serde(with = "postrider::internal::duration")]
    pub initial_delay: Duration,
    /// Factor from one delay to the next.
    pub multiplier: f64,
    /// Maximum delay.
    #[serde(with = "postrider::internal::duration")]
    pub max_delay: Duration,
    /// Fraction by which a delay may be shorter or longer.
    pub jitter_pct: f64,
}

/// How delays grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Each delay is longer than the one before.
    Exponential,
    /// Every delay is `initial_delay`.
    Fixed,
}

/// `[evidence.scheduler]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// Number of rows per transaction.
    pub batch_size_rows: u32,
    /// Delay between two batches.
    pub sleep_between_batches: DelayRange,
    /// Interval between two runs.
    #[serde(with = "postrider::internal::duration")]
    pub interval: Duration,
}

/// `[evidence.n2]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct N2 {
    /// Time after N1 at which N2 is forced.
    #[serde(with = "postrider::internal::duration")]
    pub force_after: Duration,
    /// Whether unsettled artifacts then fail permanently.
    pub mark_remaining_permanent: bool,
    /// What to do when nothing needed a retry.
    pub when_no_retry: WhenNoRetry,
}

/// What to do when nothing needed a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenNoRetry {
    /// Send N2 right after N1.
    Send,
    /// Send no N2.
    Skip,
}

/// `[evidence.ingest]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// Maximum size of an archive.
    pub max_archive: ByteSize,
    /// Maximum unpacked size of an archive.
    pub max_unpacked: ByteSize,
    /// Maximum unpacked size of a file.
    pub max_file: ByteSize,
    /// Maximum number of entries.
    pub max_entries: usize,
    /// Maximum compression ratio of an entry.
    pub max_ratio: u64,
    /// Deadline of an upload.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
}

impl Settings {
    /// The retry policy.
    pub fn policy(&self) -> Result<RetryPolicy, PolicyError> {
        let backoff = &self.retry.backoff;
        let shape = match backoff.strategy {
            Strategy::Exponential => Backoff::Exponential {
                initial: backoff.initial_delay,
                multiplier: backoff.multiplier,
                cap: backoff.max_delay,
                jitter: backoff.jitter_pct,
            },
            Strategy::Fixed => Backoff::Fixed(backoff.initial_delay),
        };
        RetryPolicy::new(shape, self.retry.max_attempts)
    }

    /// Maximum number of attempts after the first.
    #[must_use]
    pub fn max_retries(&self) -> i32 {
        i32::try_from(self.retry.max_attempts.saturating_sub(1)).unwrap_or(i32::MAX)
    }

    /// Invalid values, as pairs of key and problem.
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut check = |wrong: bool, key, what: &str| {
            if wrong {
                found.push((key, what.to_owned()));
            }
        };
        let zero = "must be greater than zero";
        check(
            !(1..=1000).contains(&self.concurrency),
            "evidence.concurrency",
            "must be between 1 and 1000",
        );
        check(
            self.case_api.timeout.is_zero(),
            "evidence.case_api.timeout",
            zero,
        );
        check(
            self.scheduler.interval.is_zero(),
            "evidence.scheduler.interval",
            zero,
        );
        check(
            !(1..=10_000).contains(&self.scheduler.batch_size_rows),
            "evidence.scheduler.batch_size_rows",
            "must be between 1 and 10000",
        );
        check(
            self.ingest.max_entries == 0,
            "evidence.ingest.max_entries",
            "must be at least 1",
        );
        check(
            self.ingest.max_ratio == 0,
            "evidence.ingest.max_ratio",
            "must be at least 1",
        );
        check(
            self.ingest.timeout.is_zero(),
            "evidence.ingest.timeout",
            zero,
        );
        match self.policy() {
            Ok(_) => {}
            Err(error @ PolicyError::Attempts(_)) => {
                found.push(("evidence.retry.max_attempts", error.to_string()));
            }
            Err(error @ PolicyError::Multiplier(_)) => {
                found.push(("evidence.retry.backoff.multiplier", error.to_string()));
            }
            Err(error @ PolicyError::Jitter(_)) => {
                found.push(("evidence.retry.backoff.jitter_pct", error.to_string()));
            }
            Err(error) => found.push(("evidence.retry.backoff.max_delay", error.to_string())),
        }
        if let Some(wrong) = self.lease.contradiction() {
            found.push(("evidence.lease.seconds", wrong));
        }
        if let Some(wrong) = not_http(self.case_api.url.as_ref()) {
            found.push(("evidence.case_api.url", wrong));
        }
        found.extend(self.notify.contradictions());
        found
    }
}

impl CaseApi {
    /// The Case API; none for the built-in one.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        Endpoint::from_settings(self.url.as_ref(), self.token.as_deref(), self.timeout)
    }
}

impl fmt::Debug for CaseApi {
    /// Without the token and the address, which may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaseApi")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .field("timeout", &self.timeout)
            .field("look_up", &self.look_up)
            .finish_non_exhaustive()
    }
}
