//! What is counted.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::model::{Outcome, Stuck};

/// See [`crate::cleaning::readings`].
pub(crate) const PENDING: &str = "payments_pending";
pub(crate) const PENDING_AGE: &str = "payments_pending_age_seconds";

/// Makes every name appear, at zero, before anything has happened.
pub fn register() {
    describe_counter!("payments_accepted_total", "Payments accepted");
    describe_counter!(
        "payments_settled_total",
        "Payments that the wallet told the end of"
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
        "Payments that the wallet handled, by outcome"
    );
    describe_counter!(
        "wallet_duplicates_total",
        "Messages that had been handled before"
    );
    describe_counter!(
        "wallet_swallowed_total",
        "Messages given up after an unexpected failure"
    );
    describe_counter!(
        "wallet_callback_failed_total",
        "Call backs that came to nothing"
    );
    describe_gauge!(PENDING, "Payments without an end");
    describe_gauge!(PENDING_AGE, "Age of the oldest payment without an end");
    gauge!(PENDING).increment(0.0);
    gauge!(PENDING_AGE).increment(0.0);
    accepted(0);
    exhausted(0);
    duplicates(0);
    swallowed(0);
    callback_failed(0);
    for outcome in [Outcome::Succeed, Outcome::Failed] {
        settled(outcome, 0);
        handled(outcome, 0);
    }
    for why in [
        Stuck::OutboxExhausted,
        Stuck::ListenerFailed,
        Stuck::CallbackFailed,
        Stuck::InFlight,
    ] {
        reconciled(why, 0);
    }
}

pub(crate) fn accepted(payments: u64) {
    counter!("payments_accepted_total").increment(payments);
}

pub(crate) fn settled(outcome: Outcome, payments: u64) {
    counter!("payments_settled_total", "status" => outcome.as_str()).increment(payments);
}

pub(crate) fn reconciled(why: Stuck, payments: u64) {
    counter!("payments_reconciled_total", "why" => why.as_str()).increment(payments);
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

pub(crate) fn swallowed(messages: u64) {
    counter!("wallet_swallowed_total").increment(messages);
}

pub(crate) fn callback_failed(calls: u64) {
    counter!("wallet_callback_failed_total").increment(calls);
}
