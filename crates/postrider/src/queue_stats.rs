//! What there is to do, what was done, and who does it: a few cheap questions over all work tables.
//!
//! Any process can answer them from the database. No answer costs more on a large table than on a small one: counts end
//! at [`CAP`], and what was done is asked for a short time back only. Each question is one round trip.

mod statements;

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgPool};

use crate::Result;
use crate::lease::WorkTable;

/// Counts end here: one more than this means "more".
pub const CAP: i64 = 10_000;

/// What was done is counted in pieces of so many seconds.
pub const STEP_SECONDS: i64 = 10;

const WORKERS: &str = "
select id, name, work_table, kinds, started_at, seen_at, seen_at + ttl >= clock_timestamp() as alive
from postrider.worker order by work_table, name, id limit 500";

/// How much waits in a work table. No number is larger than [`CAP`] + 1.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Depth {
    /// The work table.
    pub work_table: String,
    /// Due, and nobody works on it yet.
    pub ready: i64,
    /// Somebody works on it.
    pub leased: i64,
    /// Due later: retries, delays.
    pub later: i64,
    /// Not due until something else has happened, or somebody says so.
    pub parked: i64,
    /// Given up.
    pub dead: i64,
    /// For how many seconds the oldest that is due has waited.
    pub oldest_seconds: Option<f64>,
}

/// How many of a kind ended within [`STEP_SECONDS`].
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Tally {
    /// The work table.
    pub work_table: String,
    /// When the piece of time begins, in seconds since 1970.
    pub begins: i64,
    /// `done` (all that succeeded), `done_after_retry` (those of them that had failed before), `retry` or `dead`.
    pub what: String,
    /// How many.
    pub count: i64,
}

/// A worker that says that it is there.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WorkerRow {
    /// Unique to the process.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it takes work from.
    pub work_table: String,
    /// What it handles; none: everything.
    pub kinds: Option<Vec<String>>,
    /// Since when.
    pub started_at: OffsetDateTime,
    /// Its last sign of life.
    pub seen_at: OffsetDateTime,
    /// Was that recent enough?
    pub alive: bool,
}

/// The questions, for these tables.
#[derive(Debug, Clone)]
pub struct QueueStats {
    depths: std::sync::Arc<str>,
    tallies: std::sync::Arc<str>,
}

impl QueueStats {
    /// A survey of these tables.
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Self {
        let tables: Vec<&'static WorkTable> = tables.into_iter().collect();
        Self {
            depths: statements::depths(&tables).into(),
            tallies: statements::tallies(&tables).into(),
        }
    }

    /// The statement behind [`QueueStats::depths`], for whoever looks at plans.
    #[must_use]
    pub fn statement(&self) -> &str {
        &self.depths
    }

    /// How much waits in each table.
    pub async fn depths(&self, pool: &PgPool) -> Result<Vec<Depth>> {
        Ok(sqlx::query_as(AssertSqlSafe(self.depths.clone()))
            .fetch_all(pool)
            .await?)
    }

    /// What ended since then. Keep the past short: its cost grows with what ended in it.
    pub async fn tallies(&self, pool: &PgPool, since: OffsetDateTime) -> Result<Vec<Tally>> {
        Ok(sqlx::query_as(AssertSqlSafe(self.tallies.clone()))
            .bind(since)
            .fetch_all(pool)
            .await?)
    }
}

/// Every worker that has said lately that it is there.
pub async fn workers(pool: &PgPool) -> Result<Vec<WorkerRow>> {
    Ok(sqlx::query_as(WORKERS).fetch_all(pool).await?)
}
