//! WorkTableGauges: what the database says about all processes together, for gauges, dashboards and alerts.
//!
//! The promise: reading is cheap whatever the tables hold. Of each work table at most [`MOST`] unfinished items are
//! looked at, in the order in which they are claimed, so a depth of 10000 means "so many or more"; everything is read
//! in five statements. A counter of one process says nothing about the others and starts anew with each start; what is
//! here is the same whoever reads it.

use metrics::{Label, describe_gauge, gauge};
use sqlx::{AssertSqlSafe, PgPool};

use crate::lease::WorkTable;
use crate::transport::DELIVERIES;

/// Unfinished items of a table that are looked at.
pub const MOST: u32 = 10_000;

/// Deaths and losses of the last hour, from the journal. Index: attempt_at.
const DEATHS: &str = "
select d.work_table, count(*) from (
    select work_table from postrider.attempt
    where at > now() - interval '1 hour' and outcome = 'dead' limit 10000) d
group by d.work_table";

const WORKERS: &str = "
select work_table, count(*) from postrider.worker where seen_at > now() - ttl group by work_table";

/// A task that nobody has run for a week is one that is no longer configured.
const LEADERS: &str = "
select name, extract(epoch from heartbeat)::float8, coalesce(extract(epoch from done_at), 0)::float8,
       coalesce(ran_at > done_at, ran_at is not null)
from postrider.leader where heartbeat > now() - interval '7 days'";

/// Processes whose breaker is not closed. One that is in use probes every time its pause is over; what was not touched
/// for long after that belongs to a process that died.
const BREAKERS: &str = "
select dependency, count(*) filter (
           where state <> 'closed' and greatest(changed_at, open_until) > clock_timestamp() - interval '10 minutes')
from postrider.breaker group by dependency";

/// One value and what it is of.
#[derive(Debug, Clone, PartialEq)]
pub struct Gauge {
    /// The gauge's name.
    pub name: &'static str,
    /// Which one, if there are several.
    pub label: Option<(&'static str, String)>,
    /// The value.
    pub value: f64,
}

impl Gauge {
    /// The only one of its name.
    #[must_use]
    pub const fn new(name: &'static str, value: f64) -> Self {
        Self {
            name,
            label: None,
            value,
        }
    }

    /// One of several, told apart by this label.
    #[must_use]
    pub fn of(
        name: &'static str,
        label: &'static str,
        which: impl Into<String>,
        value: f64,
    ) -> Self {
        Self {
            name,
            label: Some((label, which.into())),
            value,
        }
    }

    /// Sets the gauge.
    pub fn show(&self) {
        let labels: Vec<Label> = self
            .label
            .iter()
            .map(|(name, which)| Label::new(*name, which.clone()))
            .collect();
        gauge!(self.name, labels).set(self.value);
    }
}

/// A count as a gauge shows it.
#[allow(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53, and nobody has so many"
)]
#[must_use]
pub const fn many(count: i64) -> f64 {
    count as f64
}

/// The work tables whose readings are taken.
#[derive(Debug, Clone)]
pub struct WorkTableGauges {
    tables: Vec<&'static str>,
    queues: String,
}

impl WorkTableGauges {
    /// Of these tables.
    #[must_use]
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Self {
        let tables: Vec<&WorkTable> = tables.into_iter().collect();
        let queues = tables
            .iter()
            .map(|table| queue(table))
            .collect::<Vec<_>>()
            .join("\nunion all\n");
        Self {
            tables: tables.iter().map(|table| table.name).collect(),
            queues,
        }
    }

    /// The statement over the work tables, for whoever looks at plans.
    #[must_use]
    pub fn statement(&self) -> &str {
        &self.queues
    }

    /// Everything, as of now. Every table has a value for every gauge; leaders and breakers are listed as they are found.
    pub async fn take(&self, pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
        let mut found = Vec::new();
        if !self.tables.is_empty() {
            let queues: Vec<Queue> = sqlx::query_as(AssertSqlSafe(self.queues.clone()))
                .fetch_all(pool)
                .await?;
            found.extend(queues.into_iter().flat_map(Queue::readings));
        }
        let deaths: Vec<(String, i64)> = sqlx::query_as(DEATHS).fetch_all(pool).await?;
        let workers: Vec<(String, i64)> = sqlx::query_as(WORKERS).fetch_all(pool).await?;
        for table in &self.tables {
            let of = |counts: &[(String, i64)]| {
                let count = counts.iter().find(|(name, _)| name == table);
                many(count.map_or(0, |(_, count)| *count))
            };
            found.push(Gauge::of(DEAD, "table", *table, of(&deaths)));
            // Consumers handle deliveries, and they are no workers.
            if *table != DELIVERIES.name {
                found.push(Gauge::of(LIVE_WORKERS, "table", *table, of(&workers)));
            }
        }
        let leaders: Vec<(String, f64, f64, bool)> =
            sqlx::query_as(LEADERS).fetch_all(pool).await?;
        for (name, heartbeat, done, failing) in leaders {
            let of = |gauge, value| Gauge::of(gauge, "name", name.clone(), value);
            found.push(of(HEARTBEAT, heartbeat));
            found.push(of(SUCCESS, done));
            found.push(of(FAILING, f64::from(u8::from(failing))));
        }
        let breakers: Vec<(String, i64)> = sqlx::query_as(BREAKERS).fetch_all(pool).await?;
        for (dependency, open) in breakers {
            found.push(Gauge::of(OPEN, "dependency", dependency, many(open)));
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
pub(crate) const HEARTBEAT: &str = "postrider_leader_heartbeat_timestamp_seconds";
pub(crate) const SUCCESS: &str = "postrider_leader_success_timestamp_seconds";
pub(crate) const FAILING: &str = "postrider_periodic_failing";
pub(crate) const OPEN: &str = "postrider_breakers_open";

/// What every table has.
pub(crate) const PER_TABLE: [&str; 8] = [
    DEPTH,
    DUE,
    LEASED,
    AGE,
    EXPIRED,
    UNROUTABLE,
    DEAD,
    LIVE_WORKERS,
];

#[derive(sqlx::FromRow)]
struct Queue {
    work_table: String,
    depth: i64,
    due: i64,
    leased: i64,
    expired: i64,
    unroutable: i64,
    age: f64,
}

impl Queue {
    fn readings(self) -> [Gauge; 6] {
        let of = |name, value| Gauge::of(name, "table", self.work_table.clone(), value);
        [
            of(DEPTH, many(self.depth)),
            of(DUE, many(self.due)),
            of(LEASED, many(self.leased)),
            of(EXPIRED, many(self.expired)),
            of(UNROUTABLE, many(self.unroutable)),
            of(AGE, self.age),
        ]
    }
}

/// The head of the claim index, looked at once. Nothing but compile-time constants goes into the text.
fn queue(table: &WorkTable) -> String {
    let c = &table.columns;
    format!(
        "select '{name}'::text as work_table, count(*) as depth,
       count(*) filter (where q.due <= clock_timestamp() and not q.leased) as due,
       count(*) filter (where q.leased) as leased,
       count(*) filter (where q.leased and q.lease_until < clock_timestamp()) as expired,
       count(*) filter (where q.code = 'UNROUTABLE') as unroutable,
       coalesce(max(extract(epoch from clock_timestamp() - q.due))
                filter (where q.due <= clock_timestamp() and not q.leased), 0)::float8 as age
from (select t.{due} as due, t.{state} = '{leased}'::{state_type} as leased, t.{lease_until} as lease_until,
             t.{code} as code
      from {name} t where t.{finished} is null order by t.{due}, t.{id} limit {MOST}) q",
        name = table.name,
        due = c.due,
        state = c.state,
        leased = table.states.leased,
        state_type = table.state_type,
        lease_until = c.lease_until,
        code = c.error_code,
        finished = c.finished,
        id = c.id,
    )
}

pub(crate) fn describe() {
    describe_gauge!(DEPTH, "Unfinished items, up to 10000");
    describe_gauge!(
        DUE,
        "Items that may be claimed now and are not, up to 10000"
    );
    describe_gauge!(LEASED, "Items that somebody works on, up to 10000");
    describe_gauge!(
        AGE,
        "How long the oldest item that may be claimed has waited"
    );
    describe_gauge!(
        EXPIRED,
        "Items whose worker was lost and that nobody took over yet"
    );
    describe_gauge!(
        UNROUTABLE,
        "Messages that wait because nobody subscribed to their topic"
    );
    describe_gauge!(DEAD, "Items given up within the last hour, up to 10000");
    describe_gauge!(LIVE_WORKERS, "Workers that gave a sign of life");
    describe_gauge!(HEARTBEAT, "Last sign of life of the periodic task's leader");
    describe_gauge!(SUCCESS, "When the periodic task last ended well");
    describe_gauge!(
        FAILING,
        "1 while the last run of the periodic task ended badly"
    );
    describe_gauge!(
        OPEN,
        "Processes whose breaker for the dependency is not closed"
    );
}
