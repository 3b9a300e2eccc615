//! One batch of an operation, in one transaction: if a process dies in the middle, nothing is done, and nothing is done
//! twice.
//!
//! Items in another database are changed there, in a transaction of their own, before the operation's progress is
//! recorded: if a process dies in between, they are changed, and the next step finds none left. Only the operation's
//! counts then lack that batch.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::types::Json;
use sqlx::types::time::OffsetDateTime;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use super::{Cursor, DeadLetter, DeadLetters, Filter};
use crate::Result;
use crate::conn::{CALL_TIMEOUT, with_timeout};
use crate::error::Error;
use crate::lease::{Operator, Queue};

/// Maximum number of items per transaction.
const MAX_BATCH: i64 = 500;

/// A pause earns at most this much time's worth of budget: a process that comes back doesn't catch up.
const BURST: f64 = 1.0;

const OPEN: &str =
    "select id from postrider.operation where finished_at is null order by id limit 100";

/// `due`: the number of items that the rate allows by now; `wait`: seconds until it allows one.
const CLAIM_OPERATION: &str = "
select o.created_at, o.actor, o.reason, o.action, o.filter, o.confirmed, o.reached, o.most - o.changed as remaining,
       floor(p.seconds * o.rate)::bigint as due, greatest(1 / o.rate - p.seconds, 0)::float8 as wait
from postrider.operation o,
     lateral (select least(extract(epoch from clock_timestamp() - o.paced_at)::float8, greatest($2, 1 / o.rate)) as seconds) p
where o.id = $1 and o.finished_at is null
for update of o skip locked";

/// Charges the changed items to the rate limiter, leaving at most a burst.
const ADVANCE: &str = "
update postrider.operation set
    changed = changed + $2, skipped = skipped + $3, reached = coalesce($4, reached),
    finished_at = case when $5 then clock_timestamp() end,
    paced_at = greatest(paced_at, clock_timestamp() - make_interval(secs => greatest($6, 1 / coalesce(rate, 1))))
               + make_interval(secs => ($2 + $3) / coalesce(rate, 'infinity'))
where id = $1";

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A batch was done; there may be more.
    Progressed,
    /// The rate limit allows nothing for this long.
    Wait(Duration),
    /// Another process is working on it.
    Busy,
    /// The operation has finished.
    Finished,
}

#[derive(sqlx::FromRow)]
struct ClaimedOperation {
    created_at: OffsetDateTime,
    actor: String,
    reason: Option<String>,
    action: String,
    #[sqlx(json)]
    filter: Filter,
    confirmed: bool,
    #[sqlx(json(nullable))]
    reached: Option<Cursor>,
    remaining: Option<i64>,
    due: Option<i64>,
    wait: Option<f64>,
}

#[derive(Default)]
struct Counts {
    changed: i64,
    skipped: i64,
}

impl DeadLetters {
    /// Ids of unfinished operations.
    pub async fn open_operations(&self, pool: &PgPool) -> Result<Vec<i64>> {
        Ok(sqlx::query_scalar(OPEN).fetch_all(pool).await?)
    }

    /// Performs the next batch of an operation, if its rate limit allows one.
    pub async fn step(&self, pool: &PgPool, id: i64) -> Result<Step> {
        let mut tx = pool.begin().await?;
        let operation: Option<ClaimedOperation> = sqlx::query_as(CLAIM_OPERATION)
            .bind(id)
            .bind(BURST)
            .fetch_optional(&mut *tx)
            .await?;
        let Some(operation) = operation else {
            tx.rollback().await?;
            let open: Vec<i64> = self.open_operations(pool).await?;
            return Ok(if open.contains(&id) {
                Step::Busy
            } else {
                Step::Finished
            });
        };
        let due = operation
            .due
            .unwrap_or(MAX_BATCH)
            .min(operation.remaining.unwrap_or(MAX_BATCH))
            .min(MAX_BATCH);
        if operation.due.is_some_and(|due| due < 1) {
            tx.rollback().await?;
            return Ok(Step::Wait(Duration::from_secs_f64(
                operation.wait.unwrap_or_default().clamp(0.01, 60.0),
            )));
        }
        let filter = Filter {
            // Items that die later aren't included.
            until: Some(
                operation
                    .filter
                    .until
                    .map_or(operation.created_at, |until| {
                        until.min(operation.created_at)
                    }),
            ),
            ..operation.filter.clone()
        };
        let limit = u32::try_from(due.max(0)).unwrap_or(0);
        let page = self
            .list(&mut *tx, &filter, operation.reached.as_ref(), limit)
            .await?;
        let counts = self.apply_batch(&mut tx, &operation, &page).await?;
        let finished = (page.len() as i64) < due
            || operation.remaining.is_some_and(|max| max <= counts.changed);
        sqlx::query(ADVANCE)
            .bind(id)
            .bind(counts.changed)
            .bind(counts.skipped)
            .bind(page.last().map(|last| Json(last.cursor())))
            .bind(finished)
            .bind(BURST)
            .execute(&mut *tx)
            .await?;
        postrider_crashpoint::point!("operation.before_commit")?;
        tx.commit().await?;
        postrider_crashpoint::point!("operation.after_commit")?;
        Ok(if finished {
            Step::Finished
        } else {
            Step::Progressed
        })
    }

    async fn apply_batch(
        &self,
        tx: &mut PgConnection,
        operation: &ClaimedOperation,
        page: &[DeadLetter],
    ) -> Result<Counts> {
        let operator = Operator {
            name: operation.actor.clone(),
            reason: operation.reason.clone(),
        };
        let mut by_table: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for letter in page {
            by_table
                .entry(&letter.work_table)
                .or_default()
                .push(letter.id);
        }
        let mut counts = Counts::default();
        for (table, ids) in by_table {
            let Some(queue) = self.queue(table) else {
                continue;
            };
            let changed = match self.remote_pool(table) {
                None => self.apply(tx, queue, &operator, operation, &ids).await?,
                // The remote database may be silent, and the local transaction must not wait for it forever.
                Some(pool) => {
                    with_timeout(CALL_TIMEOUT, async {
                        let mut remote = pool.begin().await?;
                        let changed = self.apply(&mut remote, queue, &operator, operation, &ids);
                        let changed = changed.await?;
                        remote.commit().await?;
                        Ok(changed)
                    })
                    .await?
                }
            };
            counts.changed += changed;
            counts.skipped += ids.len() as i64 - changed;
        }
        Ok(counts)
    }

    /// Changes all items of one table; one by one if one of them conflicts, because its unique key is in use again.
    async fn apply(
        &self,
        tx: &mut PgConnection,
        queue: &Queue,
        operator: &Operator,
        operation: &ClaimedOperation,
        ids: &[i64],
    ) -> Result<i64> {
        match self.apply_in(tx, queue, operator, operation, ids).await {
            Err(error) if is_unique_violation(&error) => {}
            result => return result,
        }
        let mut changed = 0;
        for id in ids {
            match self.apply_in(tx, queue, operator, operation, &[*id]).await {
                Err(error) if is_unique_violation(&error) => {}
                result => changed += result?,
            }
        }
        Ok(changed)
    }

    async fn apply_in(
        &self,
        tx: &mut PgConnection,
        queue: &Queue,
        operator: &Operator,
        operation: &ClaimedOperation,
        ids: &[i64],
    ) -> Result<i64> {
        let mut savepoint = tx.begin().await?;
        let changed = if operation.action == "archive" {
            queue.archive(&mut savepoint, operator, ids).await?
        } else {
            let allowed = self
                .allowed_ids(&mut savepoint, queue.table().name, operation.confirmed, ids)
                .await?;
            queue.redrive(&mut savepoint, operator, &allowed).await?.ids
        };
        savepoint.commit().await?;
        Ok(changed.len() as i64)
    }

    /// The items that the table's guard lets through.
    async fn allowed_ids(
        &self,
        tx: &mut PgConnection,
        table: &str,
        confirmed: bool,
        ids: &[i64],
    ) -> Result<Vec<i64>> {
        let Some((_, function)) = self.guards.iter().find(|(guarded, _)| *guarded == table) else {
            return Ok(ids.to_vec());
        };
        if !confirmed {
            return Ok(Vec::new());
        }
        Ok(
            sqlx::query_scalar(AssertSqlSafe(format!("select {function}($1)")))
                .bind(ids)
                .fetch_one(tx)
                .await?,
        )
    }
}

fn is_unique_violation(error: &Error) -> bool {
    matches!(error, Error::Database(error)
        if error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation))
}
