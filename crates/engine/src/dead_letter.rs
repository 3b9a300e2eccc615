//! Dead letters: one view across all work tables, of what was given up, why, and what became of it.
//!
//! [`DeadLetters`] is made over the tables of a program. It lists, groups by cause, shows one with all its attempts,
//! and lets an operator redrive or archive, one or many by filter, at a pace that the handlers can bear. Every such
//! deed is audited in the transaction that does it.

mod filter;
mod groups;
mod operate;
mod statements;

use std::time::Duration;

use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, PgPool};

pub use filter::{Cursor, Filter};
pub use groups::Group;
pub use operate::{Pace, Total};
use statements::Statements;

use crate::journal::{self, Attempt};
use crate::lease::{Queue, WorkTable};
use crate::{Error, Result};

const PRUNE_ARCHIVE: &str = "
delete from postrider.archive where ctid = any(array(
    select ctid from postrider.archive where archived_at < now() - make_interval(secs => $1) limit $2))";

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
    /// When it was given up.
    pub died_at: OffsetDateTime,
}

impl DeadLetter {
    /// The group that it belongs to.
    #[must_use]
    pub fn signature(&self) -> String {
        groups::signature(&self.code, self.message.as_deref())
    }

    /// Where the next page of a listing begins.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor {
            died_at: self.died_at,
            work_table: self.work_table.clone(),
            id: self.id,
        }
    }
}

/// A dead letter, its whole row and its history.
#[derive(Debug, Clone)]
pub struct Detail {
    /// The row as it stands, as JSON.
    pub row: serde_json::Value,
    /// What was tried, oldest first.
    pub attempts: Vec<Attempt>,
}

/// The dead letters of these tables.
#[derive(Debug, Clone)]
pub struct DeadLetters {
    queues: Vec<Queue>,
    sql: std::sync::Arc<Statements>,
}

impl DeadLetters {
    /// A view across these tables.
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Result<Self> {
        let tables: Vec<&'static WorkTable> = tables.into_iter().collect();
        if tables.is_empty() {
            return Err(Error::invalid("tables", "name at least one work table"));
        }
        Ok(Self {
            sql: std::sync::Arc::new(Statements::over(&tables)),
            queues: tables.into_iter().map(Queue::new).collect::<Result<_>>()?,
        })
    }

    /// The newest first; go on with the last one's [`DeadLetter::cursor`].
    pub async fn list(
        &self,
        pool: &PgPool,
        filter: &Filter,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>> {
        let query = sqlx::query_as(AssertSqlSafe(self.sql.list.clone()));
        let letters: Vec<DeadLetter> = filter
            .bind(query)
            .bind(after.map(|cursor| cursor.died_at))
            .bind(after.map(|cursor| cursor.work_table.as_str()))
            .bind(after.map(|cursor| cursor.id))
            .bind(i64::from(limit))
            .fetch_all(pool)
            .await?;
        Ok(letters)
    }

    /// One dead letter with everything that is known about it.
    pub async fn show(&self, pool: &PgPool, work_table: &str, id: i64) -> Result<Option<Detail>> {
        let Some(show) = self.sql.show(work_table) else {
            return Ok(None);
        };
        let row: Option<(serde_json::Value,)> = sqlx::query_as(AssertSqlSafe(show))
            .bind(id)
            .fetch_optional(pool)
            .await?;
        let Some((row,)) = row else { return Ok(None) };
        let attempts = journal::attempts(pool, work_table, id).await?;
        Ok(Some(Detail { row, attempts }))
    }

    /// Forgets up to `limit` archived items that were laid to rest longer ago than `keep`.
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
