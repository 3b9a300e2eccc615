//! What is counted, under the names that dashboards already use.

use metrics::{counter, describe_counter, describe_gauge, gauge};

pub(crate) const TABLE: &str = "outbox_orders";

/// The 95th percentile of the age of what is pending; see [`crate::cleaning::readings`].
pub(crate) const AGE: &str = "outbox_age_seconds";

/// Makes every name appear, at zero, before anything has happened.
pub fn register() {
    describe_counter!("outbox_enqueued_total", "Orders accepted for sending");
    describe_counter!("outbox_sent_total", "Orders that the broker has accepted");
    describe_counter!(
        "outbox_failed_total",
        "Attempts that failed and are made again"
    );
    describe_counter!(
        "outbox_aborted_total",
        "Orders given up, rejected, expired or cancelled"
    );
    describe_gauge!(AGE, "Age of pending orders, 95th percentile");
    enqueued(0);
    sent(0);
    failed(0);
    aborted(0);
    gauge!(AGE, "table" => TABLE).increment(0.0);
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
