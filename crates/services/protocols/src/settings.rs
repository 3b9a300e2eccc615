//! What can be configured about protocols: the section `[protocols]`.

use std::{fmt, path::PathBuf, time::Duration};

use bytesize::ByteSize;
use postrider::{
    RetryPolicy,
    internal::settings::{BreakerOverride, Lease, address, not_http, unless_empty},
    retry::{MAX_DELAY, PolicyError},
};
use postrider_web::http_client::Endpoint;
use serde::Deserialize;
use url::Url;

/// No wait between attempts is longer, unless the first one is.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// `[protocols]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// So many failures of a step, and the protocol is a dead letter.
    pub max_retries: u32,
    /// So many steps run at once.
    pub concurrency: usize,
    /// The largest document.
    pub max_size: ByteSize,
    /// A dead letter that nobody touched for so long is archived.
    #[serde(with = "postrider::internal::duration")]
    pub archive_after: Duration,
    /// How long published events are kept.
    #[serde(with = "postrider::internal::duration")]
    pub retention: Duration,
    /// Absent: the vocabulary that comes with the program.
    #[serde(deserialize_with = "unless_empty")]
    pub vocabulary: Option<PathBuf>,
    /// Waits.
    pub retry: Retry,
    /// Who does the steps.
    pub stages: Stages,
    /// What reading a PDF may cost.
    pub pdf: Pdf,
    /// Leases.
    pub lease: Lease,
    /// When a stage service or the store is left alone, where that differs from the common settings.
    pub breaker: BreakerOverride,
}

/// `[protocols.retry]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The wait after the first failure; it doubles.
    #[serde(with = "postrider::internal::duration")]
    pub initial_delay: Duration,
}

/// `[protocols.stages]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stages {
    /// The longest that one call may take.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// So long an unavailable service is waited for at no cost.
    #[serde(with = "postrider::internal::duration")]
    pub patience: Duration,
    /// From a document to criteria.
    pub extraction: Service,
    /// From criteria to codes.
    pub grounding: Service,
}

/// `[protocols.stages.extraction]` and `[protocols.stages.grounding]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Absent: the built-in stage.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Shown as a bearer token.
    #[serde(deserialize_with = "unless_empty")]
    pub token: Option<String>,
}

/// `[protocols.pdf]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pdf {
    /// The longest that reading one may take.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// The most memory that reading one may take.
    pub memory: ByteSize,
}

impl Settings {
    /// The retry policy: so many failures, with waits that double.
    pub fn policy(&self) -> Result<RetryPolicy, PolicyError> {
        let initial = self.retry.initial_delay;
        RetryPolicy::exponential(initial, LONGEST_WAIT.max(initial), self.max_retries)
    }

    /// What only shows when values are used. (key, what is wrong)
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        match self.policy() {
            Ok(_) => {}
            Err(error @ PolicyError::Attempts(_)) => {
                found.push(("protocols.max_retries", error.to_string()));
            }
            Err(error) => found.push(("protocols.retry.initial_delay", error.to_string())),
        }
        if !(1..=1000).contains(&self.concurrency) {
            let wrong = "must be between 1 and 1000".to_owned();
            found.push(("protocols.concurrency", wrong));
        }
        if self.max_size.as_u64() == 0 {
            found.push(("protocols.max_size", "must be at least 1 byte".to_owned()));
        }
        if self.pdf.memory < ByteSize::mib(64) {
            found.push(("protocols.pdf.memory", "must be at least 64MiB".to_owned()));
        }
        for (key, duration) in [
            ("protocols.stages.timeout", self.stages.timeout),
            ("protocols.pdf.timeout", self.pdf.timeout),
            ("protocols.retry.initial_delay", self.retry.initial_delay),
        ] {
            if duration.is_zero() {
                found.push((key, "must be longer than zero".to_owned()));
            }
        }
        for (key, duration) in [
            ("protocols.archive_after", self.archive_after),
            ("protocols.retention", self.retention),
        ] {
            if duration > MAX_DELAY {
                found.push((key, "must be at most ten years".to_owned()));
            }
        }
        if let Some(wrong) = self.lease.contradiction() {
            found.push(("protocols.lease.seconds", wrong));
        }
        for (key, service) in [
            ("protocols.stages.extraction.url", &self.stages.extraction),
            ("protocols.stages.grounding.url", &self.stages.grounding),
        ] {
            if let Some(wrong) = not_http(service.url.as_ref()) {
                found.push((key, wrong));
            }
        }
        found
    }
}

impl Service {
    /// The service's API; none for the built-in stage.
    #[must_use]
    pub fn endpoint(&self, timeout: Duration) -> Option<Endpoint> {
        Endpoint::from_settings(self.url.as_ref(), self.token.as_deref(), timeout)
    }
}

impl fmt::Debug for Service {
    /// Neither the token nor what an address may carry belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .finish_non_exhaustive()
    }
}
