//! Many at once, at a pace.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::types::time::OffsetDateTime;
use sqlx::{PgPool, Postgres, Transaction};

use super::{DeadLetter, DeadLetters, Filter};
use crate::Result;
use crate::error::Error;
use crate::lease::{Operator, Queue};

/// How fast to go: a redrive of thousands must not become a storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// So many per transaction.
    pub batch: u32,
    /// So long between two.
    pub pause: Duration,
    /// At most so many in all.
    pub most: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            batch: 100,
            pause: Duration::from_millis(200),
            most: u64::MAX,
        }
    }
}

/// What a deed over many came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// So many items changed.
    pub changed: u64,
    /// So many fit the filter but could not be changed: a dedupe key of theirs is in use again, or they changed meanwhile.
    pub skipped: u64,
}

#[derive(Debug, Clone, Copy)]
enum Deed {
    Redrive,
    Archive,
}

impl DeadLetters {
    /// Redrives every dead letter that fits, oldest deaths last, at this pace. One that dies again is not taken twice.
    pub async fn redrive(
        &self,
        pool: &PgPool,
        operator: &Operator,
        filter: &Filter,
        pace: Pace,
    ) -> Result<Total> {
        self.each(pool, operator, filter, pace, Deed::Redrive).await
    }

    /// Archives every dead letter that fits.
    pub async fn archive(
        &self,
        pool: &PgPool,
        operator: &Operator,
        filter: &Filter,
        pace: Pace,
    ) -> Result<Total> {
        self.each(pool, operator, filter, pace, Deed::Archive).await
    }

    async fn each(
        &self,
        pool: &PgPool,
        operator: &Operator,
        filter: &Filter,
        pace: Pace,
        deed: Deed,
    ) -> Result<Total> {
        if filter.ids.is_some() && filter.work_table.is_none() {
            return Err(Error::invalid("filter", "ids need their work table"));
        }
        let now: OffsetDateTime = sqlx::query_scalar("select clock_timestamp()")
            .fetch_one(pool)
            .await?;
        let filter = Filter {
            // What dies from now on is another death.
            until: Some(filter.until.map_or(now, |until| until.min(now))),
            ..filter.clone()
        };
        let mut total = Total::default();
        let mut after = None;
        while total.changed < pace.most {
            let page = self
                .list(pool, &filter, after.as_ref(), pace.batch.max(1))
                .await?;
            let Some(last) = page.last() else { break };
            after = Some(last.cursor());
            let left = usize::try_from(pace.most - total.changed).unwrap_or(usize::MAX);
            let fitting = page.iter().filter(|letter| filter.fits(letter)).take(left);
            let changed = self.batch(pool, operator, fitting, deed).await?;
            total.changed += changed.changed;
            total.skipped += changed.skipped;
            if page.len() < pace.batch as usize {
                break;
            }
            tokio::time::sleep(pace.pause).await;
        }
        Ok(total)
    }

    async fn batch(
        &self,
        pool: &PgPool,
        operator: &Operator,
        letters: impl Iterator<Item = &DeadLetter>,
        deed: Deed,
    ) -> Result<Total> {
        let mut by_table: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for letter in letters {
            by_table
                .entry(&letter.work_table)
                .or_default()
                .push(letter.id);
        }
        let mut total = Total::default();
        for (table, ids) in by_table {
            let Some(queue) = self.queue(table) else {
                continue;
            };
            match apply(pool, queue, operator, &ids, deed).await {
                Ok(changed) => {
                    total.changed += changed;
                    total.skipped += ids.len() as u64 - changed;
                }
                // One whose unique key is taken again must not hold back the others.
                Err(error) if is_unique_violation(&error) => {
                    for id in ids {
                        match apply(pool, queue, operator, &[id], deed).await {
                            Ok(changed) => {
                                total.changed += changed;
                                total.skipped += 1 - changed;
                            }
                            Err(error) if is_unique_violation(&error) => total.skipped += 1,
                            Err(error) => return Err(error),
                        }
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }
}

async fn apply(
    pool: &PgPool,
    queue: &Queue,
    operator: &Operator,
    ids: &[i64],
    deed: Deed,
) -> Result<u64> {
    let mut tx: Transaction<'_, Postgres> = pool.begin().await?;
    let changed = match deed {
        Deed::Redrive => queue.redrive(&mut tx, operator, ids).await?.ids,
        Deed::Archive => queue.archive(&mut tx, operator, ids).await?,
    };
    tx.commit().await?;
    Ok(changed.len() as u64)
}

fn is_unique_violation(error: &Error) -> bool {
    matches!(error, Error::Database(error)
        if error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation))
}
