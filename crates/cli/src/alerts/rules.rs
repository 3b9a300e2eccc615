//! Every rule. `make alerts` writes `deploy/alerts.yml` from this list; each has a section in the operations guide.

use std::time::Duration;

use super::rule::{
    Look, Rule,
    Severity::{Critical, Warning},
    Wrong::{Above, Below},
};

const AT_ONCE: Duration = Duration::ZERO;
const HOUR: f64 = 3_600.0;

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// What most rules have in common.
const BASE: Rule = Rule {
    name: "",
    group: "postrider",
    metric: "",
    only: None,
    by: None,
    look: Look::Value,
    wrong: Above(0.0),
    hold: AT_ONCE,
    severity: Warning,
    summary: "",
    advice: "",
};

/// All of them.
pub const RULES: &[Rule] = &[
    Rule {
        name: "PostriderAbsent",
        metric: "postrider_build_info",
        look: Look::Absent,
        hold: minutes(2),
        severity: Critical,
        summary: "No Postrider process is there to be scraped",
        advice: "Start one, or mend the scraping.",
        ..BASE
    },
    Rule {
        name: "DatabaseAway",
        metric: "postrider_database_reachable",
        look: Look::Worst,
        wrong: Below(1.0),
        hold: minutes(1),
        severity: Critical,
        summary: "A process can't reach the database",
        advice: "Accepted work waits and nothing is lost. Look at the server and the network; `postrider doctor` says more.",
        ..BASE
    },
    Rule {
        name: "NoWorkers",
        metric: "postrider_workers",
        by: Some("table"),
        wrong: Below(1.0),
        hold: minutes(2),
        severity: Critical,
        summary: "Nobody works on {}",
        advice: "Start a process with the roles worker and publisher.",
        ..BASE
    },
    Rule {
        name: "WorkWaits",
        metric: "postrider_queue_age_seconds",
        by: Some("table"),
        wrong: Above(300.0),
        hold: minutes(5),
        summary: "The oldest item of {} has been due for more than 5 minutes",
        advice: "More work comes in than is done: add workers, or find out what makes them slow.",
        ..BASE
    },
    Rule {
        name: "LeasesExpired",
        metric: "postrider_leases_expired",
        by: Some("table"),
        hold: minutes(5),
        summary: "Items of {} were left behind by lost workers, and nobody takes them over",
        advice: "The workers of this table do not get round to rescuing; look at their logs and at the database.",
        ..BASE
    },
    Rule {
        name: "DeadLetters",
        metric: "postrider_dead_last_hour",
        by: Some("table"),
        summary: "Items of {} were given up within the last hour",
        advice: "Look at the groups of dead letters, mend the cause, then redrive.",
        ..BASE
    },
    Rule {
        name: "DeadLettersMany",
        metric: "postrider_dead_last_hour",
        by: Some("table"),
        wrong: Above(99.0),
        severity: Critical,
        summary: "A hundred items of {} or more were given up within the last hour",
        advice: "One cause behind most of them is likely: look at the groups of dead letters.",
        ..BASE
    },
    Rule {
        name: "MessagesUnroutable",
        metric: "postrider_queue_unroutable",
        by: Some("table"),
        hold: minutes(10),
        summary: "Messages of {} wait because nobody subscribed to their topic",
        advice: "`postrider doctor` names the topics: subscribe a consumer, or stop sending.",
        ..BASE
    },
    Rule {
        name: "BreakerOpen",
        metric: "postrider_breakers_open",
        by: Some("dependency"),
        hold: minutes(2),
        summary: "{} has been unavailable for more than 2 minutes",
        advice: "Work for it waits and spends no attempts. Mend the other side; calls begin again by themselves.",
        ..BASE
    },
    Rule {
        name: "PeriodicSilent",
        metric: "postrider_leader_heartbeat_timestamp_seconds",
        by: Some("name"),
        look: Look::Age,
        wrong: Above(300.0),
        hold: minutes(1),
        severity: Critical,
        summary: "Nobody has run the periodic task {} for 5 minutes",
        advice: "Start a process with the role scheduler.",
        ..BASE
    },
    Rule {
        name: "PeriodicFails",
        metric: "postrider_periodic_failing",
        by: Some("name"),
        hold: minutes(15),
        summary: "The periodic task {} has been failing for 15 minutes",
        advice: "The log of the process that runs it says why.",
        ..BASE
    },
    Rule {
        name: "OrdersWait",
        group: "orders",
        metric: "outbox_age_seconds",
        only: Some(("table", "outbox_orders")),
        wrong: Above(300.0),
        hold: minutes(5),
        severity: Critical,
        summary: "Orders have been pending for more than 5 minutes (95th percentile)",
        advice: "Look at the broker and at its breaker. An order past its expires_at is not sent.",
        ..BASE
    },
    Rule {
        name: "PaymentsStuck",
        group: "payments",
        metric: "payments_pending_age_seconds",
        wrong: Above(900.0),
        hold: minutes(5),
        severity: Critical,
        summary: "A payment has been without an end for more than 15 minutes",
        advice: "`postrider payments list --status pending` says why; `postrider payments reconcile` settles it.",
        ..BASE
    },
    Rule {
        name: "ExportsStuck",
        group: "exports",
        metric: "exports_open_job_age_seconds",
        wrong: Above(6.0 * HOUR),
        hold: minutes(5),
        summary: "An export job has been running for more than 6 hours",
        advice: "`postrider exports list --status RUNNING` shows it; look at the source and at the store.",
        ..BASE
    },
    Rule {
        name: "ProtocolsDead",
        group: "protocols",
        metric: "protocols_by_status",
        only: Some(("status", "dead_letter")),
        hold: minutes(60),
        summary: "Protocols were given up and nobody has touched them for an hour",
        advice: "`postrider protocols list --status dead_letter` shows them; they are archived after 7 days.",
        ..BASE
    },
    Rule {
        name: "EvidencePermanentFailures",
        group: "evidence",
        metric: "evidence_permanent_failures_share",
        wrong: Above(0.1),
        hold: minutes(5),
        summary: "More than 10 % of the evidence files of the last hour failed for good",
        advice: "evidence_permanent_failures_count shows by which error code; `postrider evidence list` shows the jobs.",
        ..BASE
    },
    Rule {
        name: "EvidenceRetryQueueDeep",
        group: "evidence",
        metric: "evidence_retry_queue_depth",
        only: Some(("unit", "artifacts")),
        wrong: Above(500.0),
        hold: minutes(10),
        summary: "More than 500 evidence files have been waiting for a retry for 10 minutes",
        advice: "Look at the Case API, and at scheduler_circuit_breaker_open_count.",
        ..BASE
    },
    Rule {
        name: "EvidenceN2Late",
        group: "evidence",
        metric: "evidence_n2_latency_average_seconds",
        wrong: Above(6.0 * HOUR),
        summary: "Final notifications take more than 6 hours on average",
        advice: "Retries succeed late or not at all; see evidence_attach_retry_success_rate.",
        ..BASE
    },
    Rule {
        name: "EvidenceN2Forced",
        group: "evidence",
        metric: "evidence_n2_forced_last_hour",
        summary: "A final notification went out by force, with files unsettled",
        advice: "`postrider evidence list` shows the job; its N2 counts what was unsettled.",
        ..BASE
    },
    Rule {
        name: "EvidenceSchedulerSilent",
        group: "evidence",
        metric: "scheduler_last_run_timestamp_seconds",
        look: Look::Age,
        wrong: Above(900.0),
        hold: minutes(1),
        severity: Critical,
        summary: "The retry scheduler has not ended a run well for 15 minutes",
        advice: "Is a process with the role scheduler running? `postrider doctor` shows the leaders.",
        ..BASE
    },
];
