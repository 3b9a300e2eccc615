//! What is counted, under the names that dashboards already use (a dot is an underscore here).

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::model::Code;

// See [`crate::readings`].
pub(crate) const FIRST_RATE: &str = "evidence_attach_first_attempt_success_rate";
pub(crate) const RETRY_RATE: &str = "evidence_attach_retry_success_rate";
pub(crate) const DEPTH: &str = "evidence_retry_queue_depth";
pub(crate) const LAST_RUN: &str = "scheduler_last_run_timestamp_seconds";
pub(crate) const PERMANENT_SHARE: &str = "evidence_permanent_failures_share";
pub(crate) const N2_AVERAGE: &str = "evidence_n2_latency_average_seconds";
pub(crate) const N2_FORCED_LATELY: &str = "evidence_n2_forced_last_hour";

/// Makes every name appear, at zero, before anything has happened.
pub fn register() {
    describe_gauge!(
        FIRST_RATE,
        "Share of first attempts of the last hour that attached"
    );
    describe_gauge!(
        RETRY_RATE,
        "Share of retries of the last hour that attached"
    );
    describe_counter!("evidence_attach_attempts_total", "Attempts, by outcome");
    describe_gauge!(DEPTH, "What waits for a retry or is being retried");
    describe_histogram!("evidence_n2_latency_seconds", "From N1 to N2");
    describe_counter!("evidence_n2_forced_total", "N2 that went out by force");
    describe_counter!(
        "evidence_permanent_failures_count",
        "Artifacts that can no longer be retried, by error code"
    );
    describe_histogram!(
        "scheduler_duration_seconds",
        "One run of the retry scheduler"
    );
    describe_gauge!("scheduler_batch_size", "Rows in the scheduler's last batch");
    describe_counter!(
        "scheduler_circuit_breaker_open_count",
        "Runs that put nothing because the Case API is left alone"
    );
    describe_gauge!(
        LAST_RUN,
        "When the retry scheduler last ended a run well, in whatever process"
    );
    describe_gauge!(
        PERMANENT_SHARE,
        "Files that failed for good within the last hour, as a share of those first tried in it"
    );
    describe_gauge!(
        N2_AVERAGE,
        "From N1 to N2, on average over the last six hours"
    );
    describe_gauge!(
        N2_FORCED_LATELY,
        "N2 that went out by force within the last hour"
    );
    for attempt in ["first", "retry"] {
        for outcome in ["attached", "failed"] {
            counter!("evidence_attach_attempts_total", "attempt" => attempt, "outcome" => outcome)
                .increment(0);
        }
    }
    for code in Code::ALL {
        permanent_failure(code.as_str(), 0);
    }
    gauge!(FIRST_RATE).increment(0.0);
    gauge!(RETRY_RATE).increment(0.0);
    gauge!(DEPTH, "unit" => "rows").increment(0.0);
    gauge!(DEPTH, "unit" => "artifacts").increment(0.0);
    gauge!("scheduler_batch_size").increment(0.0);
    for name in [PERMANENT_SHARE, N2_AVERAGE, N2_FORCED_LATELY] {
        gauge!(name).increment(0.0);
    }
    gauge!(LAST_RUN).increment(0.0);
    counter!("scheduler_circuit_breaker_open_count").increment(0);
    counter!("evidence_n2_forced_total").increment(0);
    // A histogram that was asked for appears with the first scrape, empty.
    let _ = histogram!("evidence_n2_latency_seconds");
    let _ = histogram!("scheduler_duration_seconds");
}

pub(crate) fn attempted(attempt: i32, attached: bool) {
    let attempt = if attempt > 1 { "retry" } else { "first" };
    let outcome = if attached { "attached" } else { "failed" };
    counter!("evidence_attach_attempts_total", "attempt" => attempt, "outcome" => outcome)
        .increment(1);
}

pub(crate) fn permanent_failure(code: &str, artifacts: u64) {
    counter!("evidence_permanent_failures_count", "error_code" => code.to_owned())
        .increment(artifacts);
}

pub(crate) fn n2_latency(latency: Duration) {
    histogram!("evidence_n2_latency_seconds").record(latency);
}

pub(crate) fn n2_forced() {
    counter!("evidence_n2_forced_total").increment(1);
}

pub(crate) fn ran(took: Duration) {
    histogram!("scheduler_duration_seconds").record(took);
}

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub(crate) fn batch(rows: usize) {
    gauge!("scheduler_batch_size").set(rows as f64);
}

pub(crate) fn breaker_open() {
    counter!("scheduler_circuit_breaker_open_count").increment(1);
}
