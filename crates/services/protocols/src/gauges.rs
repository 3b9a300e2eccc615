//! Metrics: counters of what happened, and the gauge of protocols by status.

use metrics::{counter, describe_counter, describe_gauge, gauge};
use postrider_inspect::gauges::{Gauge, gauge_value};
use sqlx::PgPool;

use crate::{
    model::{Status, Step},
    store,
};

const BY_STATUS: &str = "protocols_by_status";

/// Describes every metric and exports it at zero before anything has happened.
pub fn register() {
    describe_counter!("protocols_uploaded_total", "Protocols accepted");
    describe_counter!("protocols_steps_done_total", "Pipeline steps done");
    describe_counter!(
        "protocols_steps_failed_total",
        "Pipeline steps that failed and will be retried"
    );
    describe_counter!("protocols_dead_total", "Protocols that became dead letters");
    describe_counter!("protocols_retried_total", "Protocols retried by hand");
    describe_counter!("protocols_archived_total", "Dead letters archived");
    describe_gauge!(BY_STATUS, "Protocols by status");
    for status in Status::ALL {
        gauge!(BY_STATUS, "status" => status.as_str()).increment(0.0);
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

/// Reads the gauges that metrics and alerts show.
pub async fn read(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let counts = store::counts(pool).await?;
    let gauge = |status: Status| {
        let count = counts.iter().find(|(found, _)| *found == status);
        let count = gauge_value(count.map_or(0, |(_, count)| *count));
        Gauge::labeled(BY_STATUS, "status", status.as_str(), count)
    };
    Ok(Status::ALL.into_iter().map(gauge).collect())
}

pub(crate) fn uploaded(protocols: u64) {
    counter!("protocols_uploaded_total").increment(protocols);
}

pub(crate) fn done(step: Step, steps: u64) {
    counter!("protocols_steps_done_total", "step" => step.name()).increment(steps);
}

pub(crate) fn failed(step: Step, steps: u64) {
    counter!("protocols_steps_failed_total", "step" => step.name()).increment(steps);
}

pub(crate) fn dead(step: Step, protocols: u64) {
    counter!("protocols_dead_total", "step" => step.name()).increment(protocols);
}

pub(crate) fn retried(protocols: u64) {
    counter!("protocols_retried_total").increment(protocols);
}

pub(crate) fn archived(protocols: u64) {
    counter!("protocols_archived_total").increment(protocols);
}
