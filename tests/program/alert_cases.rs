//! When each alert fires, written by hand: Prometheus and the program must both agree with it.
//!
//! Time is in minutes. A gauge is healthy for ten minutes, then unhealthy, then healthy again.

/// One alert and the course of its gauge.
pub struct Case {
    pub alert: &'static str,
    pub metric: &'static str,
    pub label: Option<(&'static str, &'static str)>,
    pub gauge: Gauge,
    /// The minute in which it fires, and not a minute earlier.
    pub fires: u64,
    pub severity: &'static str,
}

/// The course of a gauge.
pub enum Gauge {
    /// The first value for ten minutes, then the second, and the first again five minutes after the alert should have fired.
    Value { well: f64, wrong: f64 },
    /// A heartbeat every minute until the tenth, and another five minutes after the alert should have fired.
    LastSign,
    /// Present for ten minutes, then absent.
    Gone,
}

const fn value(
    alert: &'static str,
    metric: &'static str,
    label: Option<(&'static str, &'static str)>,
    [well, wrong]: [f64; 2],
    fires: u64,
    severity: &'static str,
) -> Case {
    Case {
        alert,
        metric,
        label,
        gauge: Gauge::Value { well, wrong },
        fires,
        severity,
    }
}

const TABLE: Option<(&str, &str)> = Some(("table", "a.b"));

pub const CASES: &[Case] = &[
    Case {
        alert: "PostriderAbsent",
        metric: "postrider_build_info",
        label: Some(("version", "1")),
        gauge: Gauge::Gone,
        // Prometheus keeps looking at a last value for five minutes.
        fires: 18,
        severity: "critical",
    },
    value(
        "DatabaseAway",
        "postrider_database_reachable",
        None,
        [1.0, 0.0],
        11,
        "critical",
    ),
    value(
        "NoWorkers",
        "postrider_workers",
        TABLE,
        [1.0, 0.0],
        12,
        "critical",
    ),
    value(
        "WorkWaits",
        "postrider_queue_age_seconds",
        TABLE,
        [300.0, 301.0],
        15,
        "warning",
    ),
    value(
        "LeasesExpired",
        "postrider_leases_expired",
        TABLE,
        [0.0, 1.0],
        15,
        "warning",
    ),
    value(
        "DeadLetters",
        "postrider_dead_last_hour",
        TABLE,
        [0.0, 1.0],
        10,
        "warning",
    ),
    value(
        "DeadLettersMany",
        "postrider_dead_last_hour",
        TABLE,
        [99.0, 100.0],
        10,
        "critical",
    ),
    value(
        "MessagesUnroutable",
        "postrider_queue_unroutable",
        TABLE,
        [0.0, 1.0],
        20,
        "warning",
    ),
    value(
        "BreakerOpen",
        "postrider_breakers_open",
        Some(("dependency", "broker")),
        [0.0, 1.0],
        12,
        "warning",
    ),
    Case {
        alert: "PeriodicSilent",
        metric: "postrider_leader_heartbeat_timestamp_seconds",
        label: Some(("name", "housekeeping")),
        gauge: Gauge::LastSign,
        // More than five minutes after the tenth, for a minute.
        fires: 17,
        severity: "critical",
    },
    value(
        "PeriodicFails",
        "postrider_periodic_failing",
        Some(("name", "housekeeping")),
        [0.0, 1.0],
        25,
        "warning",
    ),
    value(
        "OrdersWait",
        "outbox_age_seconds",
        Some(("table", "outbox_orders")),
        [300.0, 300.5],
        15,
        "critical",
    ),
    value(
        "PaymentsStuck",
        "payments_pending_age_seconds",
        None,
        [900.0, 901.0],
        15,
        "critical",
    ),
    value(
        "ExportsStuck",
        "exports_open_job_age_seconds",
        None,
        [21600.0, 21601.0],
        15,
        "warning",
    ),
    value(
        "ProtocolsDead",
        "protocols_by_status",
        Some(("status", "dead_letter")),
        [0.0, 1.0],
        70,
        "warning",
    ),
    value(
        "EvidencePermanentFailures",
        "evidence_permanent_failures_share",
        None,
        [0.1, 0.11],
        15,
        "warning",
    ),
    value(
        "EvidenceRetryQueueDeep",
        "evidence_retry_queue_depth",
        Some(("unit", "artifacts")),
        [500.0, 501.0],
        20,
        "warning",
    ),
    value(
        "EvidenceN2Late",
        "evidence_n2_latency_average_seconds",
        None,
        [21600.0, 21601.0],
        10,
        "warning",
    ),
    value(
        "EvidenceN2Forced",
        "evidence_n2_forced_last_hour",
        None,
        [0.0, 1.0],
        10,
        "warning",
    ),
    Case {
        alert: "EvidenceSchedulerSilent",
        metric: "scheduler_last_run_timestamp_seconds",
        label: None,
        gauge: Gauge::LastSign,
        // More than fifteen minutes after the tenth, for a minute.
        fires: 27,
        severity: "critical",
    },
];

impl Case {
    /// The minute in which it resolves.
    pub fn over(&self) -> u64 {
        self.fires + 6
    }

    /// The gauge's value in this minute, if it is present.
    pub fn at(&self, minute: u64) -> Option<f64> {
        match self.gauge {
            Gauge::Value { well, .. } if minute < 10 || minute >= self.over() => Some(well),
            Gauge::Value { wrong, .. } => Some(wrong),
            Gauge::LastSign if minute >= self.over() => Some((minute * 60) as f64),
            Gauge::LastSign => Some((minute.min(10) * 60) as f64),
            Gauge::Gone => (minute <= 10 || minute >= self.over()).then_some(1.0),
        }
    }
}
