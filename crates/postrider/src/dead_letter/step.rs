//! One piece of an order, in one transaction: whoever dies in the middle has done nothing, and nobody does it twice.
//!
//! What is in another database is changed there in a transaction of its own, before the order's progress is written: whoever
//! dies in between has done it, and the next finds nothing left of it. Only the order's numbers then lack that piece.

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

/// So many at most in one transaction.
const PIECE: i64 = 500;

/// The budget that a pause leaves is no more than this much time's worth: a process that comes back does not catch up.
const BURST: f64 = 1.0;

const OPEN: &str =
    "select id from postrider.operation where finished_at is null order by id limit 100";

/// `due`: how many its pace allows by now; `wait`: seconds until it allows one.
const TAKE: &str = "
select o.created_at, o.actor, o.reason, o.action, o.filter, o.confirmed, o.reached, o.most - o.changed as remaining,
       floor(p.seconds * o.rate)::bigint as due, greatest(1 / o.rate - p.seconds, 0)::float8 as wait
from postrider.operation o,
     lateral (select least(extract(epoch from clock_timestamp() - o.paced_at)::float8, greatest($2, 1 / o.rate)) as seconds) p
where o.id = $1 and o.finished_at is null
for update of o skip locked";

/// Takes the time of what was done from the pace's clock, but leaves no more than a burst of it.
const ADVANCE: &str = "
update postrider.operation set
    changed = changed + $2, skipped = skipped + $3, reached = coalesce($4, reached),
    finished_at = case when $5 then clock_timestamp() end,
    paced_at = greatest(paced_at, clock_timestamp() - make_interval(secs => greatest($6, 1 / coalesce(rate, 1))))
               + make_interval(secs => ($2 + $3) / coalesce(rate, 'infinity'))
where id = $1";

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A piece was done; there may be more.
    Done,
    /// The pace allows nothing before this long.
    Early(Duration),
    /// Somebody else is at it.
    Busy,
    /// It has ended.
    Over,
}

#[derive(sqlx::FromRow)]
struct Taken {
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
struct Counted {
    changed: i64,
    skipped: i64,
}

impl DeadLetters {
    /// Orders that have not ended.
    pub async fn open_operations(&self, pool: &PgPool) -> Result<Vec<i64>> {
        Ok(sqlx::query_scalar(OPEN).fetch_all(pool).await?)
    }

    /// Does the next piece of an order, if its pace allows one.
    pub async fn step(&self, pool: &PgPool, id: i64) -> Result<Step> {
        let mut tx = pool.begin().await?;
        let taken: Option<Taken> = sqlx::query_as(TAKE)
            .bind(id)
            .bind(BURST)
            .fetch_optional(&mut *tx)
            .await?;
        let Some(taken) = taken else {
            tx.rollback().await?;
            let open: Vec<i64> = self.open_operations(pool).await?;
            return Ok(if open.contains(&id) {
                Step::Busy
            } else {
                Step::Over
            });
        };
        let due = taken
            .due
            .unwrap_or(PIECE)
            .min(taken.remaining.unwrap_or(PIECE))
            .min(PIECE);
        if taken.due.is_some_and(|due| due < 1) {
            tx.rollback().await?;
            return Ok(Step::Early(Duration::from_secs_f64(
                taken.wait.unwrap_or_default().clamp(0.01, 60.0),
            )));
        }
        let filter = Filter {
            // What dies from then on is another death.
            until: Some(
                taken
                    .filter
                    .until
                    .map_or(taken.created_at, |until| until.min(taken.created_at)),
            ),
            ..taken.filter.clone()
        };
        let limit = u32::try_from(due.max(0)).unwrap_or(0);
        let page = self
            .list(&mut *tx, &filter, taken.reached.as_ref(), limit)
            .await?;
        let counted = self.piece(&mut tx, &taken, &page).await?;
        let over = (page.len() as i64) < due
            || taken.remaining.is_some_and(|most| most <= counted.changed);
        sqlx::query(ADVANCE)
            .bind(id)
            .bind(counted.changed)
            .bind(counted.skipped)
            .bind(page.last().map(|last| Json(last.cursor())))
            .bind(over)
            .bind(BURST)
            .execute(&mut *tx)
            .await?;
        postrider_crashpoint::point!("operation.before_commit")?;
        tx.commit().await?;
        postrider_crashpoint::point!("operation.after_commit")?;
        Ok(if over { Step::Over } else { Step::Done })
    }

    async fn piece(
        &self,
        tx: &mut PgConnection,
        taken: &Taken,
        page: &[DeadLetter],
    ) -> Result<Counted> {
        let operator = Operator {
            name: taken.actor.clone(),
            reason: taken.reason.clone(),
        };
        let mut by_table: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for letter in page {
            by_table
                .entry(&letter.work_table)
                .or_default()
                .push(letter.id);
        }
        let mut counted = Counted::default();
        for (table, ids) in by_table {
            let Some(queue) = self.queue(table) else {
                continue;
            };
            let changed = match self.place(table) {
                None => self.apply(tx, queue, &operator, taken, &ids).await?,
                // It may fall silent, and the transaction at home must not wait for it for ever.
                Some(pool) => {
                    with_timeout(CALL_TIMEOUT, async {
                        let mut there = pool.begin().await?;
                        let changed = self.apply(&mut there, queue, &operator, taken, &ids);
                        let changed = changed.await?;
                        there.commit().await?;
                        Ok(changed)
                    })
                    .await?
                }
            };
            counted.changed += changed;
            counted.skipped += ids.len() as i64 - changed;
        }
        Ok(counted)
    }

    /// All of one table, or each alone where one spoils it for the others: its unique key is taken again.
    async fn apply(
        &self,
        tx: &mut PgConnection,
        queue: &Queue,
        operator: &Operator,
        taken: &Taken,
        ids: &[i64],
    ) -> Result<i64> {
        match self.apply_in(tx, queue, operator, taken, ids).await {
            Err(error) if is_unique_violation(&error) => {}
            result => return result,
        }
        let mut changed = 0;
        for id in ids {
            match self.apply_in(tx, queue, operator, taken, &[*id]).await {
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
        taken: &Taken,
        ids: &[i64],
    ) -> Result<i64> {
        let mut savepoint = tx.begin().await?;
        let changed = if taken.action == "archive" {
            queue.archive(&mut savepoint, operator, ids).await?
        } else {
            let may = self
                .may(&mut savepoint, queue.table().name, taken.confirmed, ids)
                .await?;
            queue.redrive(&mut savepoint, operator, &may).await?.ids
        };
        savepoint.commit().await?;
        Ok(changed.len() as i64)
    }

    /// Those that the table's guard lets through.
    async fn may(
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
