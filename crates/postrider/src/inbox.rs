//! The inbox: a message delivered twice has one effect.
//!
//! [`Inbox::first_time`] returns true once per consumer and message, for the transaction that commits. Call it in the
//! effect's transaction, so that both or neither happen. A crash in between leaves no trace, and the redelivery is the
//! first time again. A duplicate that arrives at the same moment waits for the other's commit.
//!
//! Ids are kept for a retention time. It must exceed the longest way by which a message can come back: the publisher's
//! retries, the time a dead letter may wait for its redrive, and the transport's replay.
//!
//! ```no_run
//! use postrider::inbox::Inbox;
//!
//! # async fn example(pool: &sqlx::PgPool, message: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let inbox = Inbox::new("billing")?;
//! let mut tx = pool.begin().await?;
//! if inbox.first_time(&mut tx, message).await? {
//!     sqlx::query("update account set balance = balance - 5").execute(&mut *tx).await?;
//! }
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

use std::{collections::HashSet, time::Duration};

use sqlx::{PgConnection, PgPool};

use crate::{Error, lock_wait};

/// Default retention of ids.
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Minimum retention: retries alone may take this long.
pub const MIN_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Waits for a transaction that is handling the same message; bounded by `lock_timeout`.
const FIRST_TIME: &str = "
with bound as materialized (select set_config('lock_timeout', $3, true)),
     first as (insert into postrider.inbox (consumer, message_id)
               select $1, $2 from bound
               on conflict (consumer, message_id) do nothing
               returning 1)
select count(*) from first";

/// Sorted, so that two batches with the same ids wait for each other instead of deadlocking.
const FIRST_TIMES: &str = "
with bound as materialized (select set_config('lock_timeout', $3, true)),
     first as (insert into postrider.inbox (consumer, message_id)
               select distinct $1, wanted.id from bound, unnest($2::text[]) as wanted (id)
               order by 2
               on conflict (consumer, message_id) do nothing
               returning message_id)
select message_id from first";

/// A bounded number of the oldest ids, by the index on `received_at`.
const DELETE_EXPIRED: &str = "
delete from postrider.inbox where ctid = any (array(
    select ctid from postrider.inbox
    where received_at < clock_timestamp() - make_interval(secs => $1)
    order by received_at limit $2
    for update skip locked))";

/// Errors of the inbox.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The same message is being handled and that takes longer than we wait. The transaction is aborted; have the
    /// message redelivered later.
    #[error(
        "the message is being handled by another consumer of the same name; have it redelivered later"
    )]
    Busy,
    /// The database failed, or the id can't be stored.
    #[error(transparent)]
    Other(#[from] Error),
}

impl From<sqlx::Error> for InboxError {
    fn from(error: sqlx::Error) -> Self {
        if lock_wait::ran_out(&error) {
            Self::Busy
        } else {
            Self::Other(Error::Database(error))
        }
    }
}

/// The inbox of one consumer.
#[derive(Debug, Clone)]
pub struct Inbox {
    consumer: String,
    lock_timeout: Duration,
}

impl Inbox {
    /// Creates the inbox of the consumer with this name; all processes of one consumer use the same name.
    pub fn new(consumer: impl Into<String>) -> Result<Self, Error> {
        let consumer = consumer.into();
        check("consumer", &consumer, 100)?;
        Ok(Self {
            consumer,
            lock_timeout: Duration::from_secs(5),
        })
    }

    /// Sets how long to wait for a duplicate that is being handled (default 5 s).
    #[must_use]
    pub const fn lock_timeout(mut self, lock_timeout: Duration) -> Self {
        self.lock_timeout = lock_timeout;
        self
    }

    /// Returns whether this is the first time. If so, apply the effect in the same transaction.
    ///
    /// The transaction keeps this inbox's `lock_timeout` until its end.
    pub async fn first_time(
        &self,
        tx: &mut PgConnection,
        message_id: &str,
    ) -> Result<bool, InboxError> {
        check("message_id", message_id, 255)?;
        let first: i64 = sqlx::query_scalar(FIRST_TIME)
            .bind(&self.consumer)
            .bind(message_id)
            .bind(lock_wait::setting(self.lock_timeout))
            .fetch_one(tx)
            .await?;
        postrider_crashpoint::point!("inbox.taken").map_err(Error::from)?;
        Ok(first > 0)
    }

    /// [`Inbox::first_time`] for many messages, with answers in their order. An id that is in the batch twice is new at
    /// its first position only.
    pub async fn first_times(
        &self,
        tx: &mut PgConnection,
        message_ids: &[&str],
    ) -> Result<Vec<bool>, InboxError> {
        message_ids
            .iter()
            .try_for_each(|id| check("message_id", id, 255))?;
        let fresh: Vec<String> = sqlx::query_scalar(FIRST_TIMES)
            .bind(&self.consumer)
            .bind(message_ids)
            .bind(lock_wait::setting(self.lock_timeout))
            .fetch_all(tx)
            .await?;
        let mut fresh: HashSet<String> = fresh.into_iter().collect();
        Ok(message_ids.iter().map(|id| fresh.remove(*id)).collect())
    }
}

/// Deletes ids of all consumers that are older than the retention, in small batches; returns their number.
pub async fn forget(pool: &PgPool, retention: Duration) -> Result<u64, Error> {
    const PIECE: i64 = 5_000;
    if retention < MIN_RETENTION {
        let problem =
            format!("{retention:?} is too short for a redelivery to be recognised; at least 24 h");
        return Err(Error::invalid("inbox retention", problem));
    }
    let mut forgotten = 0;
    loop {
        let done = sqlx::query(DELETE_EXPIRED)
            .bind(retention.as_secs_f64())
            .bind(PIECE)
            .execute(pool)
            .await?;
        forgotten += done.rows_affected();
        if done.rows_affected() < PIECE.unsigned_abs() {
            return Ok(forgotten);
        }
    }
}

fn check(field: &'static str, text: &str, most: usize) -> Result<(), Error> {
    if text.is_empty() || text.len() > most || text.contains('\0') {
        let problem = format!(
            "{} bytes; it must have 1 to {most} and no NUL character",
            text.len()
        );
        return Err(Error::invalid(field, problem));
    }
    Ok(())
}
