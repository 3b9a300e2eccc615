//! The attempt log: append-only; it explains every counter.
//!
//! Every failed attempt has an entry, and so does the success that followed a failure. A success at the first attempt
//! is recorded in `postrider.completion` only.

use std::time::Duration;

use sqlx::types::time::OffsetDateTime;
use sqlx::{PgConnection, PgPool};

use crate::Result;
use crate::failure::Failure;

const APPEND: &str = "
insert into postrider.attempt (work_table, item_id, attempt, worker, started_at, outcome, code, category, message)
select $1, u.item_id, u.attempt, $2, now() - make_interval(secs => u.took), u.outcome, u.code, u.category, u.message
from unnest($3::bigint[], $4::integer[], $5::float8[], $6::text[], $7::text[], $8::text[], $9::text[])
     u(item_id, attempt, took, outcome, code, category, message)";

const SELECT: &str = "
select attempt, worker, started_at, at as ended_at, outcome, code, category, message
from postrider.attempt where work_table = $1 and item_id = $2 order by at, attempt";

const PRUNE: &str = "
delete from postrider.attempt where ctid = any(array(
    select ctid from postrider.attempt where at < now() - make_interval(secs => $1) limit $2))";

const PRUNE_COMPLETIONS: &str = "
delete from postrider.completion where ctid = any(array(
    select ctid from postrider.completion where at < now() - make_interval(secs => $1) limit $2))";

const COMPLETED: &str =
    "select at, worker from postrider.completion where work_table = $1 and $2 = any(ids) limit 1";

/// An entry to be written.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The item.
    pub item_id: i64,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// How long it took.
    pub took: Duration,
    /// `done`, `retry`, `snooze` or `dead`.
    pub outcome: &'static str,
    /// What went wrong.
    pub failure: Option<&'a Failure>,
}

/// A recorded entry.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Attempt {
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// The worker that made it.
    pub worker: String,
    /// When it started.
    pub started_at: OffsetDateTime,
    /// When it was settled.
    pub ended_at: OffsetDateTime,
    /// `done`, `retry`, `snooze` or `dead`.
    pub outcome: String,
    /// The failure's code.
    pub code: Option<String>,
    /// The failure's category.
    pub category: Option<String>,
    /// The failure's message.
    pub message: Option<String>,
}

/// Appends entries in the transaction that settles the items.
pub async fn append(
    transaction: &mut PgConnection,
    table: &'static str,
    worker: &str,
    entries: &[Entry<'_>],
) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let part = |of: fn(&Failure) -> &str| -> Vec<Option<&str>> {
        entries.iter().map(|entry| entry.failure.map(of)).collect()
    };
    sqlx::query(APPEND)
        .bind(table)
        .bind(worker)
        .bind(
            entries
                .iter()
                .map(|entry| entry.item_id)
                .collect::<Vec<_>>(),
        )
        .bind(
            entries
                .iter()
                .map(|entry| entry.attempt)
                .collect::<Vec<_>>(),
        )
        .bind(
            entries
                .iter()
                .map(|entry| entry.took.as_secs_f64())
                .collect::<Vec<_>>(),
        )
        .bind(
            entries
                .iter()
                .map(|entry| entry.outcome)
                .collect::<Vec<_>>(),
        )
        .bind(part(Failure::code))
        .bind(part(|failure| failure.category().as_str()))
        .bind(part(Failure::message))
        .execute(transaction)
        .await?;
    Ok(())
}

/// Returns all entries of one item, oldest first.
pub async fn attempts(pool: &PgPool, table: &str, item_id: i64) -> Result<Vec<Attempt>> {
    Ok(sqlx::query_as(SELECT)
        .bind(table)
        .bind(item_id)
        .fetch_all(pool)
        .await?)
}

/// Returns when and by which worker an item of a deleting table was finished, if that is still recorded. Scans the
/// whole record.
pub async fn completed(
    pool: &PgPool,
    table: &str,
    item_id: i64,
) -> Result<Option<(OffsetDateTime, String)>> {
    Ok(sqlx::query_as(COMPLETED)
        .bind(table)
        .bind(item_id)
        .fetch_optional(pool)
        .await?)
}

/// Deletes up to `limit` entries each of attempts and completions that are older than `keep`; returns their number.
pub async fn prune(pool: &PgPool, keep: Duration, limit: u32) -> Result<u64> {
    let mut pruned = 0;
    for statement in [PRUNE, PRUNE_COMPLETIONS] {
        let done = sqlx::query(statement)
            .bind(keep.as_secs_f64())
            .bind(i64::from(limit))
            .execute(pool)
            .await?;
        pruned += done.rows_affected();
    }
    Ok(pruned)
}
