//! Metrics.

use metrics::{counter, describe_counter, describe_gauge, gauge};
use postrider_inspect::gauges::{Gauge, gauge_value};
use sqlx::PgPool;

use crate::store::closing;

const OPEN_JOBS: &str = "exports_open_jobs";
const OPEN_JOB_AGE: &str = "exports_open_job_age_seconds";

/// Describes every metric and exports it at zero before anything has happened.
pub fn register() {
    describe_counter!(
        "exports_jobs_total",
        "Jobs, by outcome: submitted, completed, failed, cancelled"
    );
    describe_counter!(
        "exports_inputs_total",
        "Inputs, by outcome: accepted, generated, reused, dlq"
    );
    describe_counter!("exports_bytes_total", "Bytes read from the source");
    describe_gauge!(OPEN_JOBS, "Open jobs, up to 10000");
    describe_gauge!(OPEN_JOB_AGE, "Age of the oldest open job");
    gauge!(OPEN_JOBS).increment(0.0);
    gauge!(OPEN_JOB_AGE).increment(0.0);
    for outcome in ["submitted", "completed", "failed", "cancelled"] {
        job(outcome, 0);
    }
    for outcome in ["accepted", "generated", "reused", "dlq"] {
        input(outcome, 0);
    }
    bytes(0);
}

/// Reads the gauges that metrics and alerts show.
pub async fn read(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let (jobs, oldest) = closing::count_open(pool).await?;
    Ok(vec![
        Gauge::new(OPEN_JOBS, gauge_value(jobs)),
        Gauge::new(OPEN_JOB_AGE, oldest),
    ])
}

pub(crate) fn accepted(inputs: u64) {
    job("submitted", 1);
    input("accepted", inputs);
}

pub(crate) fn job(outcome: &'static str, count: u64) {
    counter!("exports_jobs_total", "outcome" => outcome).increment(count);
}

pub(crate) fn input(outcome: &'static str, count: u64) {
    counter!("exports_inputs_total", "outcome" => outcome).increment(count);
}

pub(crate) fn bytes(count: u64) {
    counter!("exports_bytes_total").increment(count);
}
