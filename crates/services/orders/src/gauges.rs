//! Metrics, under the names that existing dashboards use.

use metrics::{counter, describe_counter, describe_gauge, gauge};
use postrider_inspect::gauges::Gauge;
use sqlx::PgPool;

use crate::store;

const TABLE: &str = "outbox_orders";

/// The 95th percentile age of pending orders.
const AGE: &str = "outbox_age_seconds";

/// Describes every metric and exports it at zero before anything has happened.
pub fn register() {
    describe_counter!("outbox_enqueued_total", "Orders accepted for sending");
    describe_counter!("outbox_sent_total", "Orders accepted by the broker");
    describe_counter!(
        "outbox_failed_total",
        "Failed attempts that will be retried"
    );
    describe_counter!(
        "outbox_aborted_total",
        "Orders rejected, expired, cancelled or out of attempts"
    );
    describe_gauge!(AGE, "Age of pending orders, 95th percentile");
    enqueued(0);
    sent(0);
    failed(0);
    aborted(0);
    gauge!(AGE, "table" => TABLE).increment(0.0);
}

/// Reads the gauges that metrics and alerts show.
pub async fn read(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let age = store::pending_age(pool).await?;
    Ok(vec![Gauge::labeled(AGE, "table", TABLE, age)])
}

pub(crate) fn enqueued(orders: u64) {
    counter!("outbox_enqueued_total", "table" => TABLE).increment(orders);
}

pub(crate) fn sent(orders: u64) {
    counter!("outbox_sent_total", "table" => TABLE).increment(orders);
}

pub(crate) fn failed(attempts: u64) {
    counter!("outbox_failed_total", "table" => TABLE).increment(attempts);
}

pub(crate) fn aborted(orders: u64) {
    counter!("outbox_aborted_total", "table" => TABLE).increment(orders);
}
