//! Metrics of both sides.

use metrics::{counter, describe_counter, describe_gauge, gauge};
use postrider_inspect::gauges::{Gauge, gauge_value};
use sqlx::PgPool;

use crate::{
    model::{Outcome, PendingReason},
    requests::store,
};

const PENDING: &str = "payments_pending";
const PENDING_AGE: &str = "payments_pending_age_seconds";

/// Describes every metric and exports it at zero before anything has happened.
pub fn register() {
    describe_counter!("payments_accepted_total", "Payments accepted");
    describe_counter!(
        "payments_settled_total",
        "Payments settled by the wallet's callback, by status"
    );
    describe_counter!(
        "payments_reconciled_total",
        "Payments settled by reconciliation, by why they were stuck"
    );
    describe_counter!(
        "payments_outbox_exhausted_total",
        "Messages that could not be published"
    );
    describe_counter!(
        "wallet_handled_total",
        "Payments handled by the wallet, by status"
    );
    describe_counter!(
        "wallet_duplicates_total",
        "Messages that had already been handled"
    );
    describe_counter!(
        "wallet_swallowed_total",
        "Messages acknowledged after an unexpected failure"
    );
    describe_counter!("wallet_callback_failed_total", "Failed callbacks");
    describe_gauge!(PENDING, "Pending payments");
    describe_gauge!(PENDING_AGE, "Age of the oldest pending payment");
    gauge!(PENDING).increment(0.0);
    gauge!(PENDING_AGE).increment(0.0);
    accepted(0);
    exhausted(0);
    duplicates(0);
    consumer_failed(0);
    callback_failed(0);
    for outcome in [Outcome::Succeed, Outcome::Failed] {
        settled(outcome, 0);
        handled(outcome, 0);
    }
    for reason in [
        PendingReason::OutboxExhausted,
        PendingReason::ListenerFailed,
        PendingReason::CallbackFailed,
        PendingReason::InFlight,
    ] {
        reconciled(reason, 0);
    }
}

/// Reads the gauges that metrics and alerts show.
pub async fn read(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let (payments, oldest) = store::pending(pool).await?;
    Ok(vec![
        Gauge::new(PENDING, gauge_value(payments)),
        Gauge::new(PENDING_AGE, oldest),
    ])
}

pub(crate) fn accepted(payments: u64) {
    counter!("payments_accepted_total").increment(payments);
}

pub(crate) fn settled(outcome: Outcome, payments: u64) {
    counter!("payments_settled_total", "status" => outcome.as_str()).increment(payments);
}

pub(crate) fn reconciled(reason: PendingReason, payments: u64) {
    counter!("payments_reconciled_total", "why" => reason.as_str()).increment(payments);
}

pub(crate) fn exhausted(messages: u64) {
    counter!("payments_outbox_exhausted_total").increment(messages);
}

pub(crate) fn handled(outcome: Outcome, payments: u64) {
    counter!("wallet_handled_total", "status" => outcome.as_str()).increment(payments);
}

pub(crate) fn duplicates(messages: u64) {
    counter!("wallet_duplicates_total").increment(messages);
}

pub(crate) fn consumer_failed(messages: u64) {
    counter!("wallet_swallowed_total").increment(messages);
}

pub(crate) fn callback_failed(calls: u64) {
    counter!("wallet_callback_failed_total").increment(calls);
}
