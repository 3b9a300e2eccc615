//! Queue depth, throughput and live workers, over all work tables.
//!
//! Any process can read them from the database. The cost doesn't grow with the tables: counts stop at [`CAP`], and
//! throughput is read for a short time back only. Each call is one round trip.

mod statements;

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgPool};

use postrider::lease::WorkTable;

/// Counts stop one above this, which means "more".
pub const CAP: i64 = 10_000;

/// Width of a throughput bucket in seconds.
pub const BUCKET_SECONDS: i64 = 10;

const WORKERS: &str = "
select id, name, work_table, kinds, started_at, seen_at, seen_at + ttl >= clock_timestamp() as alive
from postrider.worker order by work_table, name, id limit 500";

/// Depth of a work table. No count is larger than [`CAP`] + 1.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Depth {
    /// Work table.
    pub work_table: String,
    /// Due and not leased.
    pub ready: i64,
    /// Leased.
    pub leased: i64,
    /// Leased, and the lease has expired.
    pub expired: i64,
    /// Due later: retries, snoozes, delays.
    pub later: i64,
    /// Not due until another item has finished or an operator unparks it.
    pub parked: i64,
    /// Waiting because the topic has no subscription. Counted among the others, too.
    pub unroutable: i64,
    /// Dead.
    pub dead: i64,
    /// Seconds that the oldest ready item has waited.
    pub oldest_seconds: Option<f64>,
}

/// Number of items with the same outcome within one bucket of [`BUCKET_SECONDS`].
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Throughput {
    /// Work table.
    pub work_table: String,
    /// Start of the bucket as a Unix timestamp.
    pub starts_at: i64,
    /// `done` (all successes), `done_after_retry` (the successes among them that had failed before), `retry` or `dead`.
    pub outcome: String,
    /// Number of items.
    pub count: i64,
}

/// A registered worker.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WorkerRow {
    /// Unique id of the worker.
    pub id: String,
    /// Name.
    pub name: String,
    /// Work table that it claims from.
    pub work_table: String,
    /// Kinds that it handles; `None` means all.
    pub kinds: Option<Vec<String>>,
    /// Start time.
    pub started_at: OffsetDateTime,
    /// Last heartbeat.
    pub seen_at: OffsetDateTime,
    /// Whether the last heartbeat is recent enough.
    pub alive: bool,
}

/// Statistics of a set of work tables.
#[derive(Debug, Clone)]
pub struct QueueStats {
    depths: std::sync::Arc<str>,
    throughput: std::sync::Arc<str>,
}

impl QueueStats {
    /// Statistics of these tables.
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Self {
        let tables: Vec<&'static WorkTable> = tables.into_iter().collect();
        Self {
            depths: statements::depths(&tables).into(),
            throughput: statements::throughput(&tables).into(),
        }
    }

    /// The statement behind [`QueueStats::depths`], for tests of its plan.
    #[doc(hidden)]
    #[must_use]
    pub fn statement(&self) -> &str {
        &self.depths
    }

    /// Depth of each table.
    pub async fn depths(&self, pool: &PgPool) -> Result<Vec<Depth>, sqlx::Error> {
        if self.depths.is_empty() {
            return Ok(Vec::new());
        }
        sqlx::query_as(AssertSqlSafe(self.depths.clone()))
            .fetch_all(pool)
            .await
    }

    /// Outcomes since then, in buckets. The cost grows with the number of outcomes, so keep the window short.
    pub async fn throughput(
        &self,
        pool: &PgPool,
        since: OffsetDateTime,
    ) -> Result<Vec<Throughput>, sqlx::Error> {
        sqlx::query_as(AssertSqlSafe(self.throughput.clone()))
            .bind(since)
            .fetch_all(pool)
            .await
    }
}

/// All registered workers, up to 500.
pub async fn workers(pool: &PgPool) -> Result<Vec<WorkerRow>, sqlx::Error> {
    sqlx::query_as(WORKERS).fetch_all(pool).await
}
