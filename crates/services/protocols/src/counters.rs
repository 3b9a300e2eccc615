//! What is counted.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::model::{Status, Step};

/// See [`crate::cleaning::readings`].
pub(crate) const STANDING: &str = "protocols_by_status";

/// Makes every name appear, at zero, before anything has happened.
pub fn register() {
    describe_counter!("protocols_uploaded_total", "Protocols accepted");
    describe_counter!("protocols_steps_done_total", "Steps of the pipeline done");
    describe_counter!(
        "protocols_steps_failed_total",
        "Steps that failed and are done again"
    );
    describe_counter!("protocols_dead_total", "Protocols that were given up");
    describe_counter!("protocols_retried_total", "Protocols that a person retried");
    describe_counter!("protocols_archived_total", "Dead letters archived");
    describe_gauge!(STANDING, "Protocols that stand so");
    for status in Status::ALL {
        gauge!(STANDING, "status" => status.as_str()).increment(0.0);
    }
    uploaded(0);
    for step in [Step::Extraction, Step::Grounding] {
        done(step, 0);
        failed(step, 0);
        dead(step, 0);
    }
    retried(0);
    archived(0);
}

pub(crate) fn uploaded(protocols: u64) {
    counter!("protocols_uploaded_total").increment(protocols);
}

pub(crate) fn done(step: Step, count: u64) {
    counter!("protocols_steps_done_total", "step" => step.name()).increment(count);
}

pub(crate) fn failed(step: Step, count: u64) {
    counter!("protocols_steps_failed_total", "step" => step.name()).increment(count);
}

pub(crate) fn dead(step: Step, count: u64) {
    counter!("protocols_dead_total", "step" => step.name()).increment(count);
}

pub(crate) fn retried(count: u64) {
    counter!("protocols_retried_total").increment(count);
}

pub(crate) fn archived(count: u64) {
    counter!("protocols_archived_total").increment(count);
}
