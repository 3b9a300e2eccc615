//! Dead letters: one view across all work tables, of what was given up, why, and what became of it.
//!
//! [`DeadLetters`] is made over the tables of a program. It lists, groups by cause, shows one with its whole history,
//! and lets an operator redrive or archive, one or many by filter, at a pace that the handlers can bear. Every such
//! deed is audited in the transaction that does it.
//!
//! A hundred thousand dead letters are listed, filtered and counted by index: each table's own `cause` column, which
//! only dead items have, tells them from all that is finished.

mod filter;
mod groups;
mod operation;
mod query;
mod remote_tables;
mod step;

use std::time::Duration;

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgExecutor, PgPool};

pub use filter::{Cursor, Filter};
pub use groups::Group;
pub use operation::{Action, Operation, Order, Total};
#[doc(hidden)]
pub use query::is_dead;
pub use step::Step;

use crate::attempts::{self, Attempt};
use crate::audit::{self, Audited};
use crate::conn::{CALL_TIMEOUT, with_timeout};
use crate::lease::{Queue, WorkTable};
use crate::{Error, Result};

const PRUNE_ARCHIVE: &str = "
delete from postrider.archive where ctid = any(array(
    select ctid from postrider.archive where archived_at < now() - make_interval(secs => $1) limit $2))";

const EXPLAIN: &str = "explain (analyze, buffers, timing off) ";

/// An item that was given up.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct DeadLetter {
    /// Its work table.
    pub work_table: String,
    /// Its id there.
    pub id: i64,
    /// Its kind; empty where the table has one kind only.
    pub kind: String,
    /// Failed attempts.
    pub attempts: i32,
    /// Lost workers.
    pub losses: i32,
    /// The last failure's code.
    pub code: String,
    /// Its category.
    pub category: Option<String>,
    /// Its message.
    pub message: Option<String>,
    /// What it has in common with others: its failure's code and message without the particulars.
    pub cause: String,
    /// When it was given up.
    pub died_at: OffsetDateTime,
}

impl DeadLetter {
    /// Where the next page of a listing begins.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor {
            died_at: self.died_at,
            work_table: self.work_table.clone(),
            id: self.id,
        }
    }

    /// Its place in a listing across databases, where the newest is the greatest; as SQL sorts those of one.
    fn place(&self) -> (OffsetDateTime, &str, i64) {
        (self.died_at, &self.work_table, self.id)
    }
}

/// An item, its whole row and its history.
#[derive(Debug, Clone)]
pub struct Detail {
    /// Is it dead now?
    pub dead: bool,
    /// The row as it stands, as JSON.
    pub row: serde_json::Value,
    /// What its handler reads.
    pub payload: serde_json::Value,
    /// What was tried, oldest first.
    pub attempts: Vec<Attempt>,
    /// What people did to it, oldest first.
    pub audit: Vec<Audited>,
}

/// The dead letters of these tables.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    queues: Vec<Queue>,
    guards: Vec<(&'static str, &'static str)>,
    elsewhere: Vec<(&'static str, PgPool)>,
}

impl DeadLetters {
    /// A view across these tables.
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Result<Self> {
        let tables: Vec<&'static WorkTable> = tables.into_iter().collect();
        if tables.is_empty() {
            return Err(Error::invalid("tables", "name at least one work table"));
        }
        Ok(Self {
            queues: tables.into_iter().map(Queue::new).collect::<Result<_>>()?,
            guards: Vec::new(),
            elsewhere: Vec::new(),
        })
    }

    /// Items of this table may be stale: they are redriven only if the operator has confirmed that, and only those that
    /// this SQL function, given ids, makes ready for it and returns.
    #[must_use]
    pub fn guard(mut self, work_table: &'static str, function: &'static str) -> Self {
        self.guards.push((work_table, function));
        self
    }

    /// The newest first; go on with the last one's [`DeadLetter::cursor`].
    pub async fn list(
        &self,
        executor: impl PgExecutor<'_>,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>> {
        let mut found: Vec<DeadLetter> = Vec::new();
        if let Some(mut query) = query::list("", &self.at_home(filter), filter, after, limit) {
            let query = query.build_query_as().persistent(false);
            found = query.fetch_all(executor).await?;
        }
        let mut merged = false;
        for (table, pool) in self.away(filter) {
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
            found.sort_by(|a, b| b.place().cmp(&a.place()));
            found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Ok(found)
    }

    /// How the database finds a page at home, in its own words; for whoever looks at plans.
    pub async fn explain(
        &self,
        pool: &PgPool,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<String>> {
        let Some(mut query) = query::list(EXPLAIN, &self.at_home(filter), filter, after, limit)
        else {
            return Ok(Vec::new());
        };
        Ok(query
            .build_query_scalar()
            .persistent(false)
            .fetch_all(pool)
            .await?)
    }

    /// How many fit, counted up to this many.
    pub async fn count(&self, pool: &PgPool, filter: &Filter, most: i64) -> Result<i64> {
        let here = query::count(&self.at_home(filter), filter, most).map(|query| (query, pool));
        let there = self
            .away(filter)
            .filter_map(|(table, pool)| Some((query::count(&[table], filter, most)?, pool)));
        let mut counted = 0;
        for (mut query, pool) in here.into_iter().chain(there) {
            let query = query.build_query_scalar::<i64>().persistent(false);
            counted += query.fetch_one(pool).await?;
        }
        Ok(counted.min(most))
    }

    /// One item with everything that is known about it, dead or not (any more).
    pub async fn show(&self, pool: &PgPool, work_table: &str, id: i64) -> Result<Option<Detail>> {
        let Some(queue) = self.queue(work_table) else {
            return Ok(None);
        };
        let pool = self.place(work_table).unwrap_or(pool);
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
            audit: audit::of_item(pool, work_table, id).await?,
        }))
    }

    /// Forgets up to `limit` archived items of this database that were laid to rest longer ago than `keep`.
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
