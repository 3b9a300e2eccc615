//! The configuration section `[protocols]`.

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

/// The maximum delay between attempts, unless the initial delay is longer.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(300);

/// `[protocols]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Failures of a step after which the protocol becomes a dead letter.
    pub max_retries: u32,
    /// Maximum number of concurrent steps.
    pub concurrency: usize,
    /// Maximum size of a document.
    pub max_size: ByteSize,
    /// Age at which an unchanged dead letter is archived.
    #[serde(with = "postrider::internal::duration")]
    pub archive_after: Duration,
    /// How long published events are kept.
    #[serde(with = "postrider::internal::duration")]
    pub retention: Duration,
    /// Path of a vocabulary; the built-in one if absent.
    #[serde(deserialize_with = "unless_empty")]
    pub vocabulary: Option<PathBuf>,
    /// Retry delays.
    pub retry: Retry,
    /// The services that run the steps.
    pub stages: Stages,
    /// Limits for reading a PDF.
    pub pdf: Pdf,
    /// Leases of the worker.
    pub lease: Lease,
    /// Breaker settings of stage services and object store, where they differ from the common ones.
    pub breaker: BreakerOverride,
}

/// `[protocols.retry]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Delay after the first failure; it doubles each time.
    #[serde(with = "postrider::internal::duration")]
    pub initial_delay: Duration,
}

/// `[protocols.stages]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stages {
    /// Timeout of one call.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// How long a protocol waits for an unavailable service before attempts are spent.
    #[serde(with = "postrider::internal::duration")]
    pub patience: Duration,
    /// Extracts criteria from a document.
    pub extraction: Service,
    /// Maps terms of criteria to codes.
    pub grounding: Service,
}

/// `[protocols.stages.extraction]` and `[protocols.stages.grounding]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// URL of the service; the built-in stage if absent.
    #[serde(deserialize_with = "address")]
    pub url: Option<Url>,
    /// Sent as a bearer token.
    #[serde(deserialize_with = "unless_empty")]
    pub token: Option<String>,
}

/// `[protocols.pdf]`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pdf {
    /// Maximum CPU time.
    #[serde(with = "postrider::internal::duration")]
    pub timeout: Duration,
    /// Maximum memory.
    pub memory: ByteSize,
}

impl Settings {
    /// The retry policy: exponential backoff.
    pub fn policy(&self) -> Result<RetryPolicy, PolicyError> {
        let initial = self.retry.initial_delay;
        RetryPolicy::exponential(initial, MAX_RETRY_DELAY.max(initial), self.max_retries)
    }

    /// Contradictions between values: key and problem.
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
    /// Leaves out the token and the URL, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("host", &self.url.as_ref().and_then(Url::host_str))
            .finish_non_exhaustive()
    }
}
