//! The inbox: a message that comes twice has one effect.
//!
//! The promise: [`Inbox::first_time`] says yes once per consumer and message, for the transaction that commits. It is
//! called in the transaction of the effect, so that both or neither happen; a crash in between leaves no trace and the
//! redelivery is the first time again. A duplicate that comes at the same moment waits for the other's commit.
//!
//! Ids are kept for a retention time. It must be longer than the longest way by which a message can come back: the
//! publisher's retries, the time that a dead letter may lie before it is redriven, and the transport's replay.

use std::{collections::HashSet, time::Duration};

use sqlx::{PgConnection, PgPool};

use crate::{Error, lock_wait};

/// How long ids are kept if nobody says otherwise.
pub const RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// No retention is shorter than this: retries alone may take that long.
pub const MIN_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// Waits for a transaction that is just taking in the same message; `lock_timeout` bounds that.
const FIRST_TIME: &str = "
with patience as materialized (select set_config('lock_timeout', $3, true)),
     first as (insert into postrider.inbox (consumer, message_id)
               select $1, $2 from patience
               on conflict (consumer, message_id) do nothing
               returning 1)
select count(*) from first";

/// Sorted, so that two batches with the same ids wait for each other instead of deadlocking.
const FIRST_TIMES: &str = "
with patience as materialized (select set_config('lock_timeout', $3, true)),
     first as (insert into postrider.inbox (consumer, message_id)
               select distinct $1, wanted.id from patience, unnest($2::text[]) as wanted (id)
               order by 2
               on conflict (consumer, message_id) do nothing
               returning message_id)
select message_id from first";

/// A bounded piece of the oldest ids, by the index on `received_at`.
const FORGET: &str = "
delete from postrider.inbox where ctid = any (array(
    select ctid from postrider.inbox
    where received_at < clock_timestamp() - make_interval(secs => $1)
    order by received_at limit $2
    for update skip locked))";

/// Why the inbox could not answer.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The same message is being handled right now and that takes longer than we wait. The transaction is aborted;
    /// have the message delivered again later.
    #[error(
        "the message is being handled by another consumer of the same name; have it delivered again later"
    )]
    Busy,
    /// The database failed, or the id can't be stored.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<sqlx::Error> for InboxError {
    fn from(error: sqlx::Error) -> Self {
        if lock_wait::ran_out(&error) {
            Self::Busy
        } else {
            Self::Engine(Error::Database(error))
        }
    }
}

/// The inbox of one consumer.
#[derive(Debug, Clone)]
pub struct Inbox {
    consumer: String,
    patience: Duration,
}

impl Inbox {
    /// The inbox of the consumer with this name; all processes of one consumer use the same name.
    pub fn new(consumer: impl Into<String>) -> Result<Self, Error> {
        let consumer = consumer.into();
        check("consumer", &consumer, 100)?;
        Ok(Self {
            consumer,
            patience: Duration::from_secs(5),
        })
    }

    /// How long to wait for a duplicate that is being handled; 5 s by default.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Is this the first time that the message is taken in? If so, do its effect in the same transaction.
    ///
    /// The transaction keeps the inbox's patience as its `lock_timeout` to its end.
    pub async fn first_time(
        &self,
        tx: &mut PgConnection,
        message_id: &str,
    ) -> Result<bool, InboxError> {
        check("message_id", message_id, 255)?;
        let first: i64 = sqlx::query_scalar(FIRST_TIME)
            .bind(&self.consumer)
            .bind(message_id)
            .bind(lock_wait::setting(self.patience))
            .fetch_one(tx)
            .await?;
        postrider_crashpoint::point!("inbox.taken").map_err(Error::from)?;
        Ok(first > 0)
    }

    /// [`Inbox::first_time`] for many messages, with the answers in their order. An id that is in the batch twice is
    /// new at its first place only.
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
            .bind(lock_wait::setting(self.patience))
            .fetch_all(tx)
            .await?;
        let mut fresh: HashSet<String> = fresh.into_iter().collect();
        Ok(message_ids.iter().map(|id| fresh.remove(*id)).collect())
    }
}

/// Forgets ids of all consumers that are older than the retention, in small pieces; returns how many.
pub async fn forget(pool: &PgPool, retention: Duration) -> Result<u64, Error> {
    const PIECE: i64 = 5_000;
    if retention < MIN_RETENTION {
        let problem =
            format!("{retention:?} is too short for a redelivery to be recognised; at least 24 h");
        return Err(Error::invalid("inbox retention", problem));
    }
    let mut forgotten = 0;
    loop {
        let done = sqlx::query(FORGET)
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
