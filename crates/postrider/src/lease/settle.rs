//! Settling: recording an item's outcome, fenced, in batches, together with its attempt log.

use std::collections::HashSet;
use std::time::Duration;

use postrider_crashpoint as crashpoint;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};

use super::ctid::Ctid;
use super::{Lease, LostLease, Queue, seconds};
use crate::Result;
use crate::conn::{StickyConn, with_timeout};
use crate::error::is_conflict;
use crate::failure::Failure;
use crate::internal::attempts::{self, Entry};
use crate::runtime::AfterCommit;

const CONFLICT_RETRIES: u32 = 5;

const MAX_STRANDED_KEYS: i32 = 1_000;

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The item is done.
    Done,
    /// The attempt failed; the item is retried after a delay. Spends an attempt.
    Retry {
        /// Delay before the next attempt.
        after: Duration,
        /// What went wrong.
        failure: Failure,
    },
    /// The item is postponed. Spends no attempt.
    Snooze {
        /// Delay before the next attempt.
        after: Duration,
    },
    /// The item failed permanently. Spends an attempt.
    Dead {
        /// What went wrong.
        failure: Failure,
    },
    /// The item lost too many workers and isn't run again. Spends no attempt, because none was made.
    Abandoned {
        /// What went wrong.
        failure: Failure,
    },
    /// The item wasn't run and returns to its place. Spends no attempt.
    Release,
}

/// A lease and the outcome of its item.
#[derive(Debug)]
pub struct Settlement {
    pub(crate) lease: Lease,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
    pub(crate) after_commit: AfterCommit,
}

impl Settlement {
    /// Settles this lease with this outcome.
    #[must_use]
    pub fn new(lease: Lease, outcome: Outcome) -> Self {
        Self {
            lease,
            outcome,
            took: Duration::ZERO,
            after_commit: AfterCommit::default(),
        }
    }

    /// Sets how long the attempt ran, for the attempt log.
    #[must_use]
    pub const fn took(mut self, took: Duration) -> Self {
        self.took = took;
        self
    }

    /// Sets the hook to run after the commit.
    pub(crate) fn after_commit(mut self, after_commit: AfterCommit) -> Self {
        self.after_commit = after_commit;
        self
    }
}

/// What a batch of settlements did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Number of settled items.
    pub settled: usize,
    /// Leases that were lost; their items weren't changed.
    pub lost: Vec<LostLease>,
    /// Ordering keys whose next item could not be promoted because an open transaction enqueues to them. Pass them to
    /// [`Queue::promote`] a little later.
    pub busy_keys: Vec<String>,
}

impl Queue {
    /// Settles one item in the caller's transaction. On [`crate::Error::LostLease`], roll back: the caller's own writes
    /// must not count either.
    pub async fn settle_in(
        &self,
        transaction: &mut PgConnection,
        worker: &str,
        lease: Lease,
        outcome: Outcome,
    ) -> Result<Settled> {
        let settled = self
            .settle_many_in(transaction, worker, &[Settlement::new(lease, outcome)])
            .await?;
        match settled.lost.first() {
            Some(lost) => Err((*lost).into()),
            None => Ok(settled),
        }
    }

    /// Settles a batch. Lost leases are reported; the others are settled.
    ///
    /// If the connection breaks, the outcome is unknown: unsettled items are claimed again when their leases expire.
    pub async fn settle(
        &self,
        pool: &PgPool,
        worker: &str,
        batch: Vec<Settlement>,
    ) -> Result<Settled> {
        let mut connection = StickyConn::new(pool.clone());
        self.settle_batch(&mut connection, worker, &batch).await
    }

    /// Settles without consuming the batch, for the runtime, which retries after a lost connection.
    pub(crate) async fn settle_batch(
        &self,
        connection: &mut StickyConn,
        worker: &str,
        batch: &[Settlement],
    ) -> Result<Settled> {
        let mut conflicts = 0;
        loop {
            let mut held = connection.take().await?;
            let settled =
                with_timeout(self.call_timeout, self.settle_on(&mut held, worker, batch)).await;
            match connection.finish(held, settled) {
                Err(crate::Error::Database(error))
                    if is_conflict(&error) && conflicts < CONFLICT_RETRIES =>
                {
                    conflicts += 1;
                }
                result => return result,
            }
        }
    }

    async fn settle_on(
        &self,
        connection: &mut PgConnection,
        worker: &str,
        batch: &[Settlement],
    ) -> Result<Settled> {
        crashpoint::point!("settle.before")?;
        // The usual batch is one statement: everything done at the first attempt, nothing to promote.
        if batch.iter().all(is_plain_success) {
            let settled = self.settle_many_in(connection, worker, batch).await?;
            crashpoint::point!("settle.after_plain")?;
            return Ok(settled);
        }
        let mut tx = connection.begin().await?;
        let settled = self.settle_many_in(&mut tx, worker, batch).await?;
        crashpoint::point!("settle.before_commit")?;
        tx.commit().await?;
        crashpoint::point!("settle.after_commit")?;
        Ok(settled)
    }

    /// Settles a batch in the caller's transaction. The caller decides whether a lost lease invalidates it.
    pub async fn settle_many_in(
        &self,
        transaction: &mut PgConnection,
        worker: &str,
        batch: &[Settlement],
    ) -> Result<Settled> {
        let batch = batch.iter().collect();
        self.settle_these_in(transaction, worker, batch).await
    }

    pub(crate) async fn settle_these_in(
        &self,
        transaction: &mut PgConnection,
        worker: &str,
        mut batch: Vec<&Settlement>,
    ) -> Result<Settled> {
        // Sorted everywhere, so that two statements over the same rows can't deadlock.
        batch.sort_unstable_by_key(|settlement| settlement.lease.id);
        let (mut held, mut lost) = (Vec::with_capacity(batch.len()), Vec::new());
        while !batch.is_empty() {
            let (now, next) = one_of_each(batch);
            let settled = self.settle_distinct(transaction, worker, &now).await?;
            for settlement in now {
                if settled.contains(&settlement.lease.id) {
                    held.push(settlement);
                } else {
                    lost.push(settlement);
                }
            }
            batch = next;
        }
        crashpoint::point!("settle.before_journal")?;
        let entries: Vec<Entry<'_>> = held.iter().filter_map(|s| entry(s)).collect();
        attempts::append(transaction, self.table.name, worker, &entries).await?;

        let keys: Vec<&str> = held
            .iter()
            .filter(|s| is_final(&s.outcome))
            .filter_map(|s| s.lease.ordering_key.as_deref())
            .collect();
        Ok(Settled {
            settled: held.len(),
            lost: lost.iter().map(|s| self.lost(s.lease.id)).collect(),
            busy_keys: self.promote(transaction, &keys).await?,
        })
    }

    /// Settles at most one lease per item; returns the ids of those that were held.
    async fn settle_distinct(
        &self,
        transaction: &mut PgConnection,
        worker: &str,
        batch: &[&Settlement],
    ) -> Result<HashSet<i64>> {
        let (done, other): (Vec<&Settlement>, Vec<&Settlement>) = batch
            .iter()
            .copied()
            .partition(|settlement| settlement.outcome == Outcome::Done);
        let mut settled = if done.is_empty() {
            HashSet::with_capacity(batch.len())
        } else {
            self.finish(transaction, worker, &done).await?
        };
        if !other.is_empty() {
            settled.extend(self.release(transaction, &other).await?);
        }
        Ok(settled)
    }

    /// Makes the next item of each of these ordering keys due; returns the keys to retry later.
    pub async fn promote(
        &self,
        connection: &mut PgConnection,
        keys: &[impl AsRef<str> + Sync],
    ) -> Result<Vec<String>> {
        let Some(promote) = &self.sql.promote else {
            return Ok(Vec::new());
        };
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        crashpoint::point!("promote.before")?;
        let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
        Ok(sqlx::query_scalar(AssertSqlSafe(promote.clone()))
            .bind(keys)
            .fetch_one(connection)
            .await?)
    }

    /// Promotes keys whose head is gone without a successor. A backstop, safe to run at any time.
    pub async fn promote_stranded(&self, connection: &mut PgConnection) -> Result<usize> {
        let Some(stranded) = &self.sql.stranded else {
            return Ok(0);
        };
        let keys: Vec<String> = sqlx::query_scalar(AssertSqlSafe(stranded.clone()))
            .bind(MAX_STRANDED_KEYS)
            .fetch_one(&mut *connection)
            .await?;
        self.promote(connection, &keys).await?;
        Ok(keys.len())
    }

    /// Most rows are where they were claimed; the others are found by id.
    async fn finish(
        &self,
        connection: &mut PgConnection,
        worker: &str,
        batch: &[&Settlement],
    ) -> Result<HashSet<i64>> {
        let (ids, fences) = keys(batch);
        let ctids: Vec<Ctid> = batch.iter().map(|s| s.lease.ctid).collect();
        let in_place: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(self.sql.done_in_place.clone()))
            .bind(ids)
            .bind(fences)
            .bind(worker)
            .bind(ctids)
            .fetch_one(&mut *connection)
            .await?;
        let mut finished: HashSet<i64> = in_place.into_iter().collect();
        if finished.len() == batch.len() {
            return Ok(finished);
        }
        let moved: Vec<&Settlement> = batch
            .iter()
            .copied()
            .filter(|s| !finished.contains(&s.lease.id))
            .collect();
        let (ids, fences) = keys(&moved);
        let elsewhere: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(self.sql.done.clone()))
            .bind(ids)
            .bind(fences)
            .bind(worker)
            .fetch_one(connection)
            .await?;
        finished.extend(elsewhere);
        Ok(finished)
    }

    /// Settles everything but successes: retry (`r`), snooze (`s`), dead (`d`), given back at no cost (`g`).
    async fn release(
        &self,
        connection: &mut PgConnection,
        batch: &[&Settlement],
    ) -> Result<Vec<i64>> {
        let (ids, fences) = keys(batch);
        let mut verbs = Vec::with_capacity(batch.len());
        let mut delays = Vec::with_capacity(batch.len());
        let mut spent: Vec<i16> = Vec::with_capacity(batch.len());
        let mut failures: Vec<Option<&Failure>> = Vec::with_capacity(batch.len());
        let mut causes: Vec<Option<String>> = Vec::with_capacity(batch.len());
        for settlement in batch {
            let (verb, delay, cost, failure) = match &settlement.outcome {
                Outcome::Retry { after, failure } => ("r", *after, 1, Some(failure)),
                Outcome::Snooze { after } => ("s", *after, 0, None),
                Outcome::Dead { failure } => ("d", Duration::ZERO, 1, Some(failure)),
                Outcome::Abandoned { failure } => ("d", Duration::ZERO, 0, Some(failure)),
                Outcome::Release | Outcome::Done => ("g", Duration::ZERO, 0, None),
            };
            verbs.push(verb);
            delays.push(seconds(delay));
            spent.push(cost);
            failures.push(failure);
            causes.push(failure.filter(|_| verb == "d").map(Failure::signature));
        }
        let part = |of: fn(&Failure) -> &str| -> Vec<Option<&str>> {
            failures.iter().map(|failure| failure.map(of)).collect()
        };
        Ok(sqlx::query_scalar(AssertSqlSafe(self.sql.release.clone()))
            .bind(ids)
            .bind(fences)
            .bind(verbs)
            .bind(delays)
            .bind(spent)
            .bind(part(Failure::code))
            .bind(part(|failure| failure.category().as_str()))
            .bind(part(Failure::message))
            .bind(causes)
            .fetch_all(connection)
            .await?)
    }
}

/// Takes one lease per item from a batch sorted by item; the second part has the others.
///
/// A worker can hold two leases of one item, one of them stale. The database returns item ids only, so both in one
/// statement would count as held.
fn one_of_each(batch: Vec<&Settlement>) -> (Vec<&Settlement>, Vec<&Settlement>) {
    let mut last = None;
    batch
        .into_iter()
        .partition(|settlement| last.replace(settlement.lease.id) != Some(settlement.lease.id))
}

fn keys(batch: &[&Settlement]) -> (Vec<i64>, Vec<i64>) {
    batch.iter().map(|s| (s.lease.id, s.lease.fence)).unzip()
}

/// There is nothing to record but that the item is done.
fn is_plain_success(settlement: &Settlement) -> bool {
    settlement.outcome == Outcome::Done
        && settlement.lease.attempts == 0
        && settlement.lease.ordering_key.is_none()
}

const fn is_final(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done | Outcome::Dead { .. } | Outcome::Abandoned { .. } => true,
        Outcome::Retry { .. } | Outcome::Snooze { .. } | Outcome::Release => false,
    }
}

fn entry(settlement: &Settlement) -> Option<Entry<'_>> {
    let (outcome, failure) = match &settlement.outcome {
        Outcome::Done if settlement.lease.attempts == 0 => return None,
        Outcome::Done => ("done", None),
        Outcome::Retry { failure, .. } => ("retry", Some(failure)),
        Outcome::Dead { failure } | Outcome::Abandoned { failure } => ("dead", Some(failure)),
        Outcome::Snooze { .. } | Outcome::Release => return None,
    };
    Some(Entry {
        item_id: settlement.lease.id,
        attempt: settlement.lease.attempts + 1,
        took: settlement.took,
        outcome,
        failure,
    })
}
