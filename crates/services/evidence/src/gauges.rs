//! Metrics, under the names that existing dashboards use (a dot is an underscore here).

use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use postrider_inspect::gauges::{Gauge, gauge_value};
use sqlx::PgPool;

use crate::{model::Code, store::gauges as store};

const FIRST_SUCCESS_RATE: &str = "evidence_attach_first_attempt_success_rate";
const RETRY_SUCCESS_RATE: &str = "evidence_attach_retry_success_rate";
const DEPTH: &str = "evidence_retry_queue_depth";
const LAST_RUN: &str = "scheduler_last_run_timestamp_seconds";
const PERMANENT_SHARE: &str = "evidence_permanent_failures_share";
const N2_AVERAGE: &str = "evidence_n2_latency_average_seconds";
const N2_FORCED_RECENTLY: &str = "evidence_n2_forced_last_hour";

/// Reads the gauges that metrics and alerts show. A rate without attempts is left out.
pub async fn read(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let rates = store::rates(pool).await?;
    let (rows, artifacts) = store::depth(pool).await?;
    let n2 = store::n2(pool).await?;
    let depth = |unit, count| Gauge::labeled(DEPTH, "unit", unit, gauge_value(count));
    let shares = [
        (FIRST_SUCCESS_RATE, rates.first_attached, rates.first),
        (RETRY_SUCCESS_RATE, rates.retries_attached, rates.retries),
    ];
    let mut gauges: Vec<Gauge> = shares
        .into_iter()
        .filter_map(|(name, part, whole)| Some(Gauge::new(name, share(part, whole)?)))
        .collect();
    let permanent = share(rates.permanent, rates.first.max(rates.permanent)).unwrap_or(0.0);
    gauges.extend([
        depth("rows", rows),
        depth("artifacts", artifacts),
        Gauge::new(PERMANENT_SHARE, permanent),
        Gauge::new(N2_AVERAGE, n2.average),
        Gauge::new(N2_FORCED_RECENTLY, gauge_value(n2.forced)),
        Gauge::new(LAST_RUN, store::last_run(pool).await?),
    ]);
    Ok(gauges)
}

fn share(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| gauge_value(part) / gauge_value(whole))
}

/// Describes every metric and exports it at zero before anything has happened.
pub fn register() {
    describe_gauge!(
        FIRST_SUCCESS_RATE,
        "Share of first attempts of the last hour that attached"
    );
    describe_gauge!(
        RETRY_SUCCESS_RATE,
        "Share of retries of the last hour that attached"
    );
    describe_counter!(
        "evidence_attach_attempts_total",
        "Attach attempts, by outcome"
    );
    describe_gauge!(
        DEPTH,
        "Rows and artifacts that wait for a retry or are being retried"
    );
    describe_histogram!("evidence_n2_latency_seconds", "Time from N1 to N2");
    describe_counter!("evidence_n2_forced_total", "Forced N2");
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
        "Runs that scheduled nothing because the Case API's breaker is open"
    );
    describe_gauge!(
        LAST_RUN,
        "When the retry scheduler last completed a run, in any process"
    );
    describe_gauge!(
        PERMANENT_SHARE,
        "Files that failed permanently within the last hour, as a share of those first tried in it"
    );
    describe_gauge!(
        N2_AVERAGE,
        "Average time from N1 to N2 over the last six hours"
    );
    describe_gauge!(N2_FORCED_RECENTLY, "Forced N2 within the last hour");
    for attempt in ["first", "retry"] {
        for outcome in ["attached", "failed"] {
            counter!("evidence_attach_attempts_total", "attempt" => attempt, "outcome" => outcome)
                .increment(0);
        }
    }
    for code in Code::ALL {
        permanent_failure(code.as_str(), 0);
    }
    gauge!(FIRST_SUCCESS_RATE).increment(0.0);
    gauge!(RETRY_SUCCESS_RATE).increment(0.0);
    gauge!(DEPTH, "unit" => "rows").increment(0.0);
    gauge!(DEPTH, "unit" => "artifacts").increment(0.0);
    gauge!("scheduler_batch_size").increment(0.0);
    for name in [PERMANENT_SHARE, N2_AVERAGE, N2_FORCED_RECENTLY] {
        gauge!(name).increment(0.0);
    }
    gauge!(LAST_RUN).increment(0.0);
    counter!("scheduler_circuit_breaker_open_count").increment(0);
    counter!("evidence_n2_forced_total").increment(0);
    // Registered, so that the first scrape shows them empty.
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

pub(crate) fn scheduler_run(took: Duration) {
    histogram!("scheduler_duration_seconds").record(took);
}

#[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
pub(crate) fn scheduler_batch(rows: usize) {
    gauge!("scheduler_batch_size").set(rows as f64);
}

pub(crate) fn breaker_open() {
    counter!("scheduler_circuit_breaker_open_count").increment(1);
}
