//! The library's metrics. Every one appears at zero before anything has happened, so that an alert rule or dashboard
//! that names it finds it.

use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::lease::WorkTable;

/// Registers every metric, for each of these tables where it is per table.
pub fn register<'a>(tables: impl IntoIterator<Item = &'a WorkTable>) {
    describe();
    for table in tables {
        let table = table.name;
        counter!("postrider_claimed_total", "table" => table).increment(0);
        counter!("postrider_claim_errors_total", "table" => table).increment(0);
        counter!("postrider_rescued_total", "table" => table).increment(0);
        counter!("postrider_leases_lost_total", "table" => table).increment(0);
        for outcome in ["done", "retry", "snooze", "dead", "given_back"] {
            counter!("postrider_settled_total", "table" => table, "outcome" => outcome)
                .increment(0);
        }
        gauge!("postrider_leases_held", "table" => table).increment(0.0);
        let _ = histogram!("postrider_claim_seconds", "table" => table);
        let _ = histogram!("postrider_handler_seconds", "table" => table);
    }
    let _ = histogram!("postrider_enqueue_group_size");
}

/// Registers a consumer group before its first message.
pub(crate) fn register_group(group: &str) {
    for outcome in ["settled", "dead", "lost", "unsettled"] {
        counter!("postrider_consumed_total", "group" => group.to_owned(), "outcome" => outcome)
            .increment(0);
    }
}

/// Registers a transport before its first message.
pub(crate) fn register_transport(transport: &'static str) {
    for outcome in ["confirmed", "unroutable", "failed", "unavailable"] {
        counter!("postrider_published_total", "transport" => transport, "outcome" => outcome)
            .increment(0);
    }
}

/// Registers a periodic task before its first run, wherever it may run.
pub(crate) fn register_periodic(name: &str) {
    gauge!("postrider_leader_held", "name" => name.to_owned()).increment(0.0);
    for outcome in ["done", "failed", "panicked"] {
        counter!("postrider_periodic_runs_total", "name" => name.to_owned(), "outcome" => outcome)
            .increment(0);
    }
    let _ = histogram!("postrider_periodic_run_seconds", "name" => name.to_owned());
    for gauge in [
        "postrider_leader_heartbeat_timestamp_seconds",
        "postrider_leader_success_timestamp_seconds",
        "postrider_periodic_failing",
    ] {
        gauge!(gauge, "name" => name.to_owned()).increment(0.0);
    }
}

fn describe() {
    describe_counter!("postrider_claimed_total", "Items claimed");
    describe_counter!("postrider_claim_errors_total", "Claims that failed");
    describe_counter!("postrider_rescued_total", "Items rescued from lost workers");
    describe_counter!(
        "postrider_leases_lost_total",
        "Leases lost before their item was settled"
    );
    describe_counter!("postrider_settled_total", "Items settled, by outcome");
    describe_gauge!("postrider_leases_held", "Leases held by this process");
    describe_histogram!("postrider_claim_seconds", "One claim, answer included");
    describe_histogram!("postrider_handler_seconds", "Duration of a handler call");
    describe_histogram!("postrider_enqueue_group_size", "Messages per group commit");
    describe_counter!(
        "postrider_consumed_total",
        "Messages consumed, by group and outcome"
    );
    describe_counter!(
        "postrider_published_total",
        "Messages published to the transport, by result"
    );
    describe_gauge!(
        "postrider_deliveries_held",
        "Deliveries of the Postgres transport held by this process"
    );
    describe_gauge!(
        "postrider_leader_held",
        "1 while this process runs the periodic task"
    );
    describe_counter!(
        "postrider_periodic_runs_total",
        "Runs of periodic tasks, by outcome"
    );
    describe_histogram!(
        "postrider_periodic_run_seconds",
        "Duration of a periodic task's run"
    );
    describe_gauge!(
        "postrider_breaker_state",
        "State of this process's breaker: 0 closed, 1 half open, 2 open"
    );
    describe_counter!(
        "postrider_breaker_opened_total",
        "Number of times a breaker opened"
    );
}
