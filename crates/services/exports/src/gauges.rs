//! What is counted.

use metrics::{counter, describe_counter, describe_gauge, gauge};

// See [`crate::completion::readings`].
pub(crate) const OPEN: &str = "exports_open_jobs";
pub(crate) const OPEN_AGE: &str = "exports_open_job_age_seconds";

/// Makes every name appear, at zero, before anything has happened.
pub fn register() {
    describe_counter!(
        "exports_jobs_total",
        "Jobs, by what became of them: submitted, completed, failed, cancelled"
    );
    describe_counter!(
        "exports_inputs_total",
        "Inputs, by what became of them: accepted, generated, reused, dlq"
    );
    describe_counter!("exports_bytes_total", "Bytes read from the source");
    describe_gauge!(OPEN, "Jobs without an end, up to 10000");
    describe_gauge!(OPEN_AGE, "Age of the oldest job without an end");
    gauge!(OPEN).increment(0.0);
    gauge!(OPEN_AGE).increment(0.0);
    for what in ["submitted", "completed", "failed", "cancelled"] {
        job(what, 0);
    }
    for what in ["accepted", "generated", "reused", "dlq"] {
        input(what, 0);
    }
    bytes(0);
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
