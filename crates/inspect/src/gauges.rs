//! Gauges over the whole fleet, read from the database.
//!
//! A counter covers one process and restarts at zero with it. These gauges are the same whichever process reads them.
//! Reads are bounded: each count stops at [`MAX_COUNT`], so a depth of 10000 means "10000 or more".

use metrics::{Label, describe_gauge, gauge};
use postrider::lease::WorkTable;
use postrider::transport::DELIVERIES;
use sqlx::PgPool;

use crate::queue_stats::{CAP, Depth, QueueStats};

/// No count is larger than this.
pub const MAX_COUNT: i64 = CAP;

/// Dead letters of the last hour, from the attempt log. Index: attempt_at.
const DEATHS: &str = "
select d.work_table, count(*) from (
    select work_table from postrider.attempt
    where at > now() - interval '1 hour' and outcome = 'dead' limit 10000) d
group by d.work_table";

const WORKERS: &str = "
select work_table, count(*) from postrider.worker where seen_at > now() - ttl group by work_table";

/// A task that no process has run for a week is no longer configured.
const LEADERS: &str = "
select name, extract(epoch from heartbeat)::float8, coalesce(extract(epoch from done_at), 0)::float8,
       coalesce(ran_at > done_at, ran_at is not null)
from postrider.leader where heartbeat > now() - interval '7 days'";

/// Processes whose breaker is not closed. A breaker in use probes each time its pause ends; one that hasn't changed for
/// ten minutes after that belongs to a dead process.
const BREAKERS: &str = "
select dependency, count(*) filter (
           where state <> 'closed' and greatest(changed_at, open_until) > clock_timestamp() - interval '10 minutes')
from postrider.breaker group by dependency";

/// One gauge and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Gauge {
    /// Metric name.
    pub name: &'static str,
    /// Label name and value, if the metric has one.
    pub label: Option<(&'static str, String)>,
    /// Value.
    pub value: f64,
}

impl Gauge {
    /// A gauge without a label.
    #[must_use]
    pub const fn new(name: &'static str, value: f64) -> Self {
        Self {
            name,
            label: None,
            value,
        }
    }

    /// A gauge with one label.
    #[must_use]
    pub fn labeled(
        name: &'static str,
        label: &'static str,
        label_value: impl Into<String>,
        value: f64,
    ) -> Self {
        Self {
            name,
            label: Some((label, label_value.into())),
            value,
        }
    }

    /// Sets the metric in the installed recorder.
    pub fn record(&self) {
        let labels: Vec<Label> = self
            .label
            .iter()
            .map(|(name, value)| Label::new(*name, value.clone()))
            .collect();
        gauge!(self.name, labels).set(self.value);
    }
}

/// A count as a gauge value.
#[allow(clippy::cast_precision_loss, reason = "exact up to 2^53")]
#[must_use]
pub const fn gauge_value(count: i64) -> f64 {
    count as f64
}

/// Reads the gauges of these work tables.
#[derive(Debug, Clone)]
pub struct WorkTableGauges {
    tables: Vec<&'static str>,
    stats: QueueStats,
}

impl WorkTableGauges {
    /// Gauges of these tables.
    #[must_use]
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Self {
        let tables: Vec<&WorkTable> = tables.into_iter().collect();
        Self {
            stats: QueueStats::new(tables.iter().copied()),
            tables: tables.iter().map(|table| table.name).collect(),
        }
    }

    /// Reads all gauges. Every table has a value for each of its gauges; leaders and breakers are listed as found.
    pub async fn read(&self, pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
        let depths = self.stats.depths(pool).await?;
        let mut found: Vec<Gauge> = depths.iter().flat_map(queue_gauges).collect();
        let deaths: Vec<(String, i64)> = sqlx::query_as(DEATHS).fetch_all(pool).await?;
        let workers: Vec<(String, i64)> = sqlx::query_as(WORKERS).fetch_all(pool).await?;
        for table in &self.tables {
            let of_table = |counts: &[(String, i64)]| {
                let found = counts.iter().find(|(name, _)| name == table);
                gauge_value(found.map_or(0, |(_, count)| *count))
            };
            found.push(Gauge::labeled(DEAD, "table", *table, of_table(&deaths)));
            // Consumers handle deliveries, and they don't register as workers.
            if *table != DELIVERIES.name {
                let live = of_table(&workers);
                found.push(Gauge::labeled(LIVE_WORKERS, "table", *table, live));
            }
        }
        let leaders: Vec<(String, f64, f64, bool)> =
            sqlx::query_as(LEADERS).fetch_all(pool).await?;
        for (name, heartbeat, done, failing) in leaders {
            let of_leader = |gauge, value| Gauge::labeled(gauge, "name", name.clone(), value);
            found.push(of_leader(HEARTBEAT, heartbeat));
            found.push(of_leader(SUCCESS, done));
            found.push(of_leader(FAILING, f64::from(u8::from(failing))));
        }
        let breakers: Vec<(String, i64)> = sqlx::query_as(BREAKERS).fetch_all(pool).await?;
        for (dependency, open) in breakers {
            found.push(Gauge::labeled(
                OPEN,
                "dependency",
                dependency,
                gauge_value(open),
            ));
        }
        Ok(found)
    }
}

const DEPTH: &str = "postrider_queue_depth";
const DUE: &str = "postrider_queue_due";
const LEASED: &str = "postrider_queue_leased";
const AGE: &str = "postrider_queue_age_seconds";
const EXPIRED: &str = "postrider_leases_expired";
const UNROUTABLE: &str = "postrider_queue_unroutable";
const DEAD: &str = "postrider_dead_last_hour";
const LIVE_WORKERS: &str = "postrider_workers";
const HEARTBEAT: &str = "postrider_leader_heartbeat_timestamp_seconds";
const SUCCESS: &str = "postrider_leader_success_timestamp_seconds";
const FAILING: &str = "postrider_periodic_failing";
const OPEN: &str = "postrider_breakers_open";

/// Gauges that every table has.
const PER_TABLE: [&str; 8] = [
    DEPTH,
    DUE,
    LEASED,
    AGE,
    EXPIRED,
    UNROUTABLE,
    DEAD,
    LIVE_WORKERS,
];

fn queue_gauges(depth: &Depth) -> [Gauge; 6] {
    let gauge = |name, value| Gauge::labeled(name, "table", depth.work_table.clone(), value);
    let capped = |name, value: i64| gauge(name, gauge_value(value.min(MAX_COUNT)));
    [
        capped(
            DEPTH,
            depth.ready + depth.leased + depth.later + depth.parked,
        ),
        capped(DUE, depth.ready),
        capped(LEASED, depth.leased),
        capped(EXPIRED, depth.expired),
        capped(UNROUTABLE, depth.unroutable),
        gauge(AGE, depth.oldest_seconds.unwrap_or_default()),
    ]
}

/// Describes every gauge and sets those of these tables to zero, so that a rule that names one finds it.
pub fn register<'a>(tables: impl IntoIterator<Item = &'a WorkTable>) {
    for table in tables {
        for name in PER_TABLE {
            gauge!(name, "table" => table.name).increment(0.0);
        }
    }
    describe_gauge!(DEPTH, "Unfinished items, up to 10000");
    describe_gauge!(DUE, "Due items that no worker has claimed, up to 10000");
    describe_gauge!(LEASED, "Leased items, up to 10000");
    describe_gauge!(AGE, "How long the oldest due item has waited");
    describe_gauge!(EXPIRED, "Items whose lease expired and wasn't rescued yet");
    describe_gauge!(
        UNROUTABLE,
        "Messages that wait because their topic has no subscription"
    );
    describe_gauge!(DEAD, "Dead letters of the last hour, up to 10000");
    describe_gauge!(LIVE_WORKERS, "Workers with a recent heartbeat");
    describe_gauge!(HEARTBEAT, "Last heartbeat of the periodic task's leader");
    describe_gauge!(SUCCESS, "Last successful run of the periodic task");
    describe_gauge!(
        FAILING,
        "1 while the last run of the periodic task has failed"
    );
    describe_gauge!(
        OPEN,
        "Processes whose breaker for the dependency is not closed"
    );
}
