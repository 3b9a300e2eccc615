//! Every rule. `make alerts` writes `deploy/alerts.yml` from this list; each has a section in the operations guide.

use std::time::Duration;

use super::rule::{
    Limit::{Above, Below},
    Read, Rule,
    Severity::{Critical, Warning},
};

const HOUR: f64 = 3_600.0;

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Defaults of a rule.
const BASE: Rule = Rule {
    name: "",
    group: "postrider",
    metric: "",
    only: None,
    by: None,
    read: Read::Value,
    limit: Above(0.0),
    hold_for: Duration::ZERO,
    severity: Warning,
    summary: "",
    advice: "",
};

/// All of them.
pub const RULES: &[Rule] = &[
    Rule {
        name: "PostriderAbsent",
        metric: "postrider_build_info",
        read: Read::Absent,
        hold_for: minutes(2),
        severity: Critical,
        summary: "No Postrider process is being scraped",
        advice: "Start a process, or fix the scrape configuration.",
        ..BASE
    },
    Rule {
        name: "DatabaseAway",
        metric: "postrider_database_reachable",
        read: Read::Worst,
        limit: Below(1.0),
        hold_for: minutes(1),
        severity: Critical,
        summary: "A process can't reach the database",
        advice: "Accepted work waits and nothing is lost. Check the database server and the network; `postrider doctor` shows more.",
        ..BASE
    },
    Rule {
        name: "NoWorkers",
        metric: "postrider_workers",
        by: Some("table"),
        limit: Below(1.0),
        hold_for: minutes(2),
        severity: Critical,
        summary: "No worker is running for {}",
        advice: "Start a process with the roles worker and publisher.",
        ..BASE
    },
    Rule {
        name: "WorkWaits",
        metric: "postrider_queue_age_seconds",
        by: Some("table"),
        limit: Above(300.0),
        hold_for: minutes(5),
        summary: "The oldest item of {} has been due for more than 5 minutes",
        advice: "Work arrives faster than it is done: add workers, or find out what slows them down.",
        ..BASE
    },
    Rule {
        name: "LeasesExpired",
        metric: "postrider_leases_expired",
        by: Some("table"),
        hold_for: minutes(5),
        summary: "Items of {} were left by lost workers and have not been rescued",
        advice: "The workers of this table do not rescue expired leases; check their logs and the database.",
        ..BASE
    },
    Rule {
        name: "DeadLetters",
        metric: "postrider_dead_last_hour",
        by: Some("table"),
        summary: "Items of {} became dead letters within the last hour",
        advice: "Check the groups of dead letters, fix the cause, then redrive.",
        ..BASE
    },
    Rule {
        name: "DeadLettersMany",
        metric: "postrider_dead_last_hour",
        by: Some("table"),
        limit: Above(99.0),
        severity: Critical,
        summary: "At least 100 items of {} became dead letters within the last hour",
        advice: "They probably have a common cause: check the groups of dead letters.",
        ..BASE
    },
    Rule {
        name: "MessagesUnroutable",
        metric: "postrider_queue_unroutable",
        by: Some("table"),
        hold_for: minutes(10),
        summary: "Messages of {} wait because no consumer is subscribed to their topic",
        advice: "`postrider doctor` names the topics: subscribe a consumer, or stop sending.",
        ..BASE
    },
    Rule {
        name: "BreakerOpen",
        metric: "postrider_breakers_open",
        by: Some("dependency"),
        hold_for: minutes(2),
        summary: "{} has been unavailable for more than 2 minutes",
        advice: "Work for it waits and uses no attempts. Fix the dependency; calls resume automatically.",
        ..BASE
    },
    Rule {
        name: "PeriodicSilent",
        metric: "postrider_leader_heartbeat_timestamp_seconds",
        by: Some("name"),
        read: Read::Age,
        limit: Above(300.0),
        hold_for: minutes(1),
        severity: Critical,
        summary: "The periodic task {} has not run for 5 minutes",
        advice: "Start a process with the role scheduler.",
        ..BASE
    },
    Rule {
        name: "PeriodicFails",
        metric: "postrider_periodic_failing",
        by: Some("name"),
        hold_for: minutes(15),
        summary: "The periodic task {} has been failing for 15 minutes",
        advice: "Check the log of the process that runs it.",
        ..BASE
    },
    Rule {
        name: "OrdersWait",
        group: "orders",
        metric: "outbox_age_seconds",
        only: Some(("table", "outbox_orders")),
        limit: Above(300.0),
        hold_for: minutes(5),
        severity: Critical,
        summary: "Orders have been pending for more than 5 minutes (95th percentile)",
        advice: "Check the broker and its breaker. An order past its expires_at is not sent.",
        ..BASE
    },
    Rule {
        name: "PaymentsStuck",
        group: "payments",
        metric: "payments_pending_age_seconds",
        limit: Above(900.0),
        hold_for: minutes(5),
        severity: Critical,
        summary: "A payment has been pending for more than 15 minutes",
        advice: "`postrider payments list --status pending` says why; `postrider payments reconcile` settles it.",
        ..BASE
    },
    Rule {
        name: "ExportsStuck",
        group: "exports",
        metric: "exports_open_job_age_seconds",
        limit: Above(6.0 * HOUR),
        hold_for: minutes(5),
        summary: "An export job has been running for more than 6 hours",
        advice: "`postrider exports list --status RUNNING` shows it; check the source and the object store.",
        ..BASE
    },
    Rule {
        name: "ProtocolsDead",
        group: "protocols",
        metric: "protocols_by_status",
        only: Some(("status", "dead_letter")),
        hold_for: minutes(60),
        summary: "Protocols have been dead letters for an hour",
        advice: "`postrider protocols list --status dead_letter` shows them; they are archived after 7 days.",
        ..BASE
    },
    Rule {
        name: "EvidencePermanentFailures",
        group: "evidence",
        metric: "evidence_permanent_failures_share",
        limit: Above(0.1),
        hold_for: minutes(5),
        summary: "More than 10 % of the evidence files of the last hour failed permanently",
        advice: "evidence_permanent_failures_count shows the error codes; `postrider evidence list` shows the jobs.",
        ..BASE
    },
    Rule {
        name: "EvidenceRetryQueueDeep",
        group: "evidence",
        metric: "evidence_retry_queue_depth",
        only: Some(("unit", "artifacts")),
        limit: Above(500.0),
        hold_for: minutes(10),
        summary: "More than 500 evidence files have been waiting for a retry for 10 minutes",
        advice: "Check the Case API and scheduler_circuit_breaker_open_count.",
        ..BASE
    },
    Rule {
        name: "EvidenceN2Late",
        group: "evidence",
        metric: "evidence_n2_latency_average_seconds",
        limit: Above(6.0 * HOUR),
        summary: "Final notifications take more than 6 hours on average",
        advice: "Retries succeed late or not at all; see evidence_attach_retry_success_rate.",
        ..BASE
    },
    Rule {
        name: "EvidenceN2Forced",
        group: "evidence",
        metric: "evidence_n2_forced_last_hour",
        summary: "A final notification was sent by force, with unsettled files",
        advice: "`postrider evidence list` shows the job; its N2 counts the unsettled files.",
        ..BASE
    },
    Rule {
        name: "EvidenceSchedulerSilent",
        group: "evidence",
        metric: "scheduler_last_run_timestamp_seconds",
        read: Read::Age,
        limit: Above(900.0),
        hold_for: minutes(1),
        severity: Critical,
        summary: "The retry scheduler has not completed a run for 15 minutes",
        advice: "Is a process with the role scheduler running? `postrider doctor` shows the leaders.",
        ..BASE
    },
];
