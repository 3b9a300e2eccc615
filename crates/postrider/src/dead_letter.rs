//! Dead letters: one view across all work tables of what failed permanently, why, and what happened to it.
//!
//! [`DeadLetters`] covers the tables of a program. It lists, groups by cause, shows one item with its whole history,
//! and lets an operator redrive or archive, one or many by filter, rate-limited. Every such action is audited in the
//! transaction that performs it.
//!
//! A hundred thousand dead letters are listed, filtered and counted by index: only dead items have a value in their
//! table's `cause` column.

mod filter;
mod groups;
mod operation;
pub(crate) mod query;
mod remote_tables;
mod step;

use std::time::Duration;

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgExecutor, PgPool};

pub use filter::{Cursor, Filter};
pub use groups::Group;
pub use operation::{Action, Operation, OperationRequest, Total};
pub use step::Step;

use crate::audit::{self, AuditRecord};
use crate::conn::{CALL_TIMEOUT, with_timeout};
use crate::internal::attempts::{self, Attempt};
use crate::lease::{Queue, WorkTable};
use crate::{Error, Result};

const PRUNE_ARCHIVE: &str = "
delete from postrider.archive where ctid = any(array(
    select ctid from postrider.archive where archived_at < now() - make_interval(secs => $1) limit $2))";

const EXPLAIN: &str = "explain (analyze, buffers, timing off) ";

/// An item that failed permanently.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct DeadLetter {
    /// Work table.
    pub work_table: String,
    /// Id in the work table.
    pub id: i64,
    /// Kind; empty if the table has a single kind.
    pub kind: String,
    /// Number of failed attempts.
    pub attempts: i32,
    /// Number of lost workers.
    pub losses: i32,
    /// Code of the last failure.
    pub code: String,
    /// Category of the last failure.
    pub category: Option<String>,
    /// Message of the last failure.
    pub message: Option<String>,
    /// The failure's signature: its code and message without the particulars, the same for equal failures.
    pub cause: String,
    /// When it was marked dead.
    pub died_at: OffsetDateTime,
}

impl DeadLetter {
    /// Cursor to continue a listing after this item.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor {
            died_at: self.died_at,
            work_table: self.work_table.clone(),
            id: self.id,
        }
    }

    /// Sort key across databases, newest greatest; the same order as in SQL.
    fn sort_key(&self) -> (OffsetDateTime, &str, i64) {
        (self.died_at, &self.work_table, self.id)
    }
}

/// An item, its whole row and its history.
#[derive(Debug, Clone)]
pub struct Detail {
    /// Whether it is dead now.
    pub dead: bool,
    /// The current row, as JSON.
    pub row: serde_json::Value,
    /// The payload that its handler reads.
    pub payload: serde_json::Value,
    /// Attempts, oldest first.
    pub attempts: Vec<Attempt>,
    /// Operator actions, oldest first.
    pub audit: Vec<AuditRecord>,
}

/// The dead letters of these tables.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    queues: Vec<Queue>,
    guards: Vec<(&'static str, &'static str)>,
    remote: Vec<(&'static str, PgPool)>,
}

impl DeadLetters {
    /// Creates a view across these tables.
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Result<Self> {
        let tables: Vec<&'static WorkTable> = tables.into_iter().collect();
        if tables.is_empty() {
            return Err(Error::invalid(
                "tables",
                "must contain at least one work table",
            ));
        }
        Ok(Self {
            queues: tables.into_iter().map(Queue::new).collect::<Result<_>>()?,
            guards: Vec::new(),
            remote: Vec::new(),
        })
    }

    /// Guards a table whose items may be stale: they are redriven only if the operator has confirmed that, and only
    /// those that this SQL function, given ids, prepares and returns.
    #[must_use]
    pub fn guard(mut self, work_table: &'static str, function: &'static str) -> Self {
        self.guards.push((work_table, function));
        self
    }

    /// Lists dead letters, newest first. Continue with the last one's [`DeadLetter::cursor`].
    pub async fn list(
        &self,
        executor: impl PgExecutor<'_>,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>> {
        let mut found: Vec<DeadLetter> = Vec::new();
        if let Some(mut query) = query::list("", &self.local_tables(filter), filter, after, limit) {
            let query = query.build_query_as().persistent(false);
            found = query.fetch_all(executor).await?;
        }
        let mut merged = false;
        for (table, pool) in self.remote_tables(filter) {
            let Some(mut query) = query::list("", &[table], filter, after, limit) else {
                continue;
            };
            let query = query.build_query_as().persistent(false);
            found.extend(
                with_timeout(CALL_TIMEOUT, async { Ok(query.fetch_all(pool).await?) }).await?,
            );
            merged = true;
        }
        if merged {
            found.sort_by(|a, b| b.sort_key().cmp(&a.sort_key()));
            found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Ok(found)
    }

    /// Explains how the database finds a page of local tables.
    pub async fn explain(
        &self,
        pool: &PgPool,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<String>> {
        let Some(mut query) =
            query::list(EXPLAIN, &self.local_tables(filter), filter, after, limit)
        else {
            return Ok(Vec::new());
        };
        Ok(query
            .build_query_scalar()
            .persistent(false)
            .fetch_all(pool)
            .await?)
    }

    /// Counts matching dead letters, up to a maximum.
    pub async fn count(&self, pool: &PgPool, filter: &Filter, max: i64) -> Result<i64> {
        let here = query::count(&self.local_tables(filter), filter, max).map(|query| (query, pool));
        let there = self
            .remote_tables(filter)
            .filter_map(|(table, pool)| Some((query::count(&[table], filter, max)?, pool)));
        let mut counted = 0;
        for (mut query, pool) in here.into_iter().chain(there) {
            let query = query.build_query_scalar::<i64>().persistent(false);
            counted += query.fetch_one(pool).await?;
        }
        Ok(counted.min(max))
    }

    /// Returns one item with everything known about it, dead or not (any more).
    pub async fn show(&self, pool: &PgPool, work_table: &str, id: i64) -> Result<Option<Detail>> {
        let Some(queue) = self.queue(work_table) else {
            return Ok(None);
        };
        let pool = self.remote_pool(work_table).unwrap_or(pool);
        let row: Option<(bool, serde_json::Value, Option<serde_json::Value>)> =
            sqlx::query_as(AssertSqlSafe(query::show(queue.table())))
                .bind(id)
                .fetch_optional(pool)
                .await?;
        let Some((dead, row, payload)) = row else {
            return Ok(None);
        };
        Ok(Some(Detail {
            dead,
            row,
            payload: payload.unwrap_or_default(),
            attempts: attempts::attempts(pool, work_table, id).await?,
            audit: audit::list(pool, work_table, id).await?,
        }))
    }

    /// Deletes up to `limit` archived items of this database that were archived longer ago than `keep`.
    pub async fn prune_archive(&self, pool: &PgPool, keep: Duration, limit: u32) -> Result<u64> {
        let done = sqlx::query(PRUNE_ARCHIVE)
            .bind(keep.as_secs_f64())
            .bind(i64::from(limit))
            .execute(pool)
            .await?;
        Ok(done.rows_affected())
    }

    fn queue(&self, work_table: &str) -> Option<&Queue> {
        self.queues
            .iter()
            .find(|queue| queue.table().name == work_table)
    }
}
