//! What can be configured about evidence: the section `[evidence]`.

mod notify;
mod pause;

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

pub use notify::Notify;
pub use pause::Pause;

/// `[evidence]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// So many files are sent to the Case API at once.
    pub concurrency: usize,
    /// Where files go.
    pub case_api: CaseApi,
    /// How failures are tried again.
    pub retry: Retry,
    /// How retries are put.
    pub scheduler: Scheduler,
    /// When the second notification goes out.
    pub n2: N2,
    /// Leases.
    pub lease: Lease,
    /// Who is notified.
    pub notify: Notify,
    /// What archives may be like.
    pub ingest: Ingest,
    /// When the Case API is left alone, where that differs from the common settings.
    pub breaker: BreakerOverride,
}

/// `[evidence.case_api]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseApi {
    /// Absent: the built-in one.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Shown as a bearer token.
    #[serde(deserialize_with = "unless_empty")]
    pub token: Option<String>,
    /// The longest that one call may take.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// Ask before an artifact is sent again that may have arrived: for an API whose PUT is not idempotent.
    pub look_up: bool,
}

/// `[evidence.retry]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// So many attempts, the first included.
    pub max_attempts: u32,
    /// The waits between them.
    pub backoff: BackoffSettings,
}

/// `[evidence.retry.backoff]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackoffSettings {
    /// Their shape.
    pub strategy: Strategy,
    /// The first wait.
    #[serde(with = "postrider::internal::duration")]
    pub initial_delay: Duration,
    /// The factor from one to the next.
    pub multiplier: f64,
    /// The longest.
    #[serde(with = "postrider::internal::duration")]
    pub max_delay: Duration,
    /// By which share a wait may be shorter or longer.
    pub jitter_pct: f64,
}

/// The shape of the waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Each is longer than the one before.
    Exponential,
    /// All are `initial_delay`.
    Fixed,
}

/// `[evidence.scheduler]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// So many rows in one transaction.
    pub batch_size_rows: u32,
    /// The pause between two of them.
    pub sleep_between_batches: Pause,
    /// How often it looks for what is due.
    #[serde(with = "postrider::internal::duration")]
    pub interval: Duration,
}

/// `[evidence.n2]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct N2 {
    /// So long after N1 it goes out whatever is unsettled.
    #[serde(with = "postrider::internal::duration")]
    pub force_after: Duration,
    /// What is unsettled then is given up.
    pub mark_remaining_permanent: bool,
    /// What happens when nothing needed a retry.
    pub when_no_retry: WhenNoRetry,
}

/// What happens when nothing needed a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenNoRetry {
    /// N2 follows N1 at once and says so.
    Send,
    /// There is no N2.
    Skip,
}

/// `[evidence.ingest]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    /// The largest archive.
    pub max_archive: ByteSize,
    /// The most that it may unpack to.
    pub max_unpacked: ByteSize,
    /// The most that one file may unpack to.
    pub max_file: ByteSize,
    /// The most entries.
    pub max_entries: usize,
    /// The most that an entry may be larger unpacked than packed.
    pub max_ratio: u64,
    /// How long an upload may take.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
}

impl Settings {
    /// The retry policy that attempts and waits make.
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

    /// Attempts after the first.
    #[must_use]
    pub fn max_retries(&self) -> i32 {
        i32::try_from(self.retry.max_attempts.saturating_sub(1)).unwrap_or(i32::MAX)
    }

    /// What only shows when values are used. (key, what is wrong)
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut check = |wrong: bool, key, what: &str| {
            if wrong {
                found.push((key, what.to_owned()));
            }
        };
        let zero = "must be longer than zero";
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
    /// Neither the token nor what an address may carry belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaseApi")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .field("timeout", &self.timeout)
            .field("look_up", &self.look_up)
            .finish_non_exhaustive()
    }
}
