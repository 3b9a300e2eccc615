//! Writes of many items in one statement, committed together with their settlements.
//!
//! A handler returns a value for its item. While one transaction commits, the values of handlers that finish meanwhile
//! collect for the next one. If a lease turns out to be lost, the transaction is rolled back and repeated without its
//! value. If the write is rejected, each value is tried alone, so that only the one at fault fails.

use std::any::Any;
use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use postrider_crashpoint as crashpoint;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::decide::{panicked, unexpected};
use super::executor::effect_timed_out;
use super::{BoxError, Verdict};
use crate::Error;
use crate::conn::ConnGuard;
use crate::error::{is_conflict, is_transient};
use crate::lease::{Queue, Settlement};

/// When several handlers finish at a time, more are about to: a batch collects while they keep coming, up to this long.
/// Each batch has a fixed cost.
const MAX_LINGER: Duration = Duration::from_millis(20);

/// A batch stops collecting after this long without a new value.
const LINGER_STEP: Duration = Duration::from_millis(2);

/// Maximum number of retries when two batches deadlock.
const MAX_CONFLICTS: u32 = 5;

/// A value to be written.
pub(super) type Value = Arc<dyn Any + Send + Sync>;

/// Writes many values in the transaction that settles their items.
pub(super) type Write = dyn for<'t> Fn(&'t mut PgConnection, Vec<Value>) -> BoxFuture<'t, Result<(), BoxError>>
    + Send
    + Sync;

/// A value, and the function that writes it.
#[derive(Clone)]
pub(super) struct BoundValue {
    pub value: Value,
    pub write: Arc<Write>,
}

/// A settlement that waits for its batch.
pub(super) struct PendingEffect {
    pub settlement: Settlement,
    pub value: BoundValue,
    pub reply: oneshot::Sender<(Settlement, EffectResult)>,
}

/// The result for one settlement.
#[derive(Debug)]
pub(super) enum EffectResult {
    /// Settled and written.
    Committed,
    /// The lease was lost; nothing was written.
    LeaseLost,
    /// The database is unavailable or busy.
    Unavailable,
    /// The write was rejected for a reason of its own.
    Rejected(Verdict),
}

/// Settles batches of values. Ends when its last sender is dropped.
pub(super) struct BatchEffect {
    pub queue: Queue,
    pub pool: PgPool,
    pub worker: String,
    pub call_timeout: Duration,
    pub busy_keys: mpsc::UnboundedSender<Vec<String>>,
    pub pending: mpsc::UnboundedReceiver<PendingEffect>,
    pub max_batch: usize,
}

impl BatchEffect {
    pub async fn run(mut self) {
        let mut group = Vec::with_capacity(self.max_batch);
        let mut several = false;
        while self.pending.recv_many(&mut group, self.max_batch).await > 0 {
            if several {
                self.linger(&mut group).await;
            }
            several = group.len() > 1;
            self.settle(group.drain(..)).await;
        }
    }

    async fn linger(&mut self, group: &mut Vec<PendingEffect>) {
        let until = Instant::now() + MAX_LINGER;
        while group.len() < self.max_batch && Instant::now() < until {
            let room = self.max_batch - group.len();
            let more = timeout(LINGER_STEP, self.pending.recv_many(group, room)).await;
            if let Ok(0) | Err(_) = more {
                break;
            }
        }
    }

    async fn settle(&self, group: impl Iterator<Item = PendingEffect>) {
        let (mut settlements, mut values, mut replies) = (Vec::new(), Vec::new(), Vec::new());
        for effect in group {
            settlements.push(effect.settlement);
            values.push(effect.value);
            replies.push(effect.reply);
        }
        let results = match self.commit(&settlements, &values).await {
            Ok(results) => results,
            Err(EffectResult::Rejected(_)) if settlements.len() > 1 => {
                let mut results = Vec::with_capacity(settlements.len());
                for (settlement, value) in settlements.iter().zip(&values) {
                    let alone = std::slice::from_ref(settlement);
                    let written = self.commit(alone, std::slice::from_ref(value)).await;
                    results.push(written.map_or_else(|end| end, |mut one| one.remove(0)));
                }
                results
            }
            Err(EffectResult::Rejected(verdict)) => vec![EffectResult::Rejected(verdict)],
            Err(_) => settlements
                .iter()
                .map(|_| EffectResult::Unavailable)
                .collect(),
        };
        for ((settlement, reply), result) in settlements.into_iter().zip(replies).zip(results) {
            let _ = reply.send((settlement, result));
        }
    }

    /// Returns the result of each settlement, or why none was settled.
    async fn commit(
        &self,
        settlements: &[Settlement],
        values: &[BoundValue],
    ) -> Result<Vec<EffectResult>, EffectResult> {
        let mut conflicts = 0;
        loop {
            // The write is the handler's own code and may panic.
            let trying = AssertUnwindSafe(self.try_once(settlements, values)).catch_unwind();
            let error = match trying.await {
                Ok(Ok(results)) => return Ok(results),
                Ok(Err(error)) => error,
                Err(panic) => return Err(EffectResult::Rejected(panicked(&*panic))),
            };
            let conflict = error.downcast_ref().is_some_and(is_conflict)
                || matches!(error.downcast_ref(), Some(Error::Database(error)) if is_conflict(error));
            if conflict && conflicts < MAX_CONFLICTS {
                conflicts += 1;
            } else if is_transient(&*error) {
                tracing::warn!(%error, table = self.queue.table().name, items = settlements.len(), "the database is unavailable; the items are retried shortly");
                return Err(EffectResult::Unavailable);
            } else {
                return Err(EffectResult::Rejected(unexpected(error)));
            }
        }
    }

    /// Commits, repeating without the values whose leases turn out to be lost.
    async fn try_once(
        &self,
        settlements: &[Settlement],
        values: &[BoundValue],
    ) -> Result<Vec<EffectResult>, BoxError> {
        let mut lost = HashSet::new();
        loop {
            let mut held = ConnGuard::acquire(&self.pool).await?;
            let settling = self.settle_on(&mut held, settlements, values, &lost);
            let Ok(settled) = timeout(self.call_timeout, settling).await else {
                return Err(Box::new(effect_timed_out(self.call_timeout)));
            };
            // A write's own error says nothing about the connection; the pool checks it.
            held.release();
            let newly_lost = settled?;
            if newly_lost.is_empty() {
                break;
            }
            lost.extend(newly_lost);
        }
        let end = |settlement: &Settlement| match lost.contains(&settlement.lease.id) {
            true => EffectResult::LeaseLost,
            false => EffectResult::Committed,
        };
        Ok(settlements.iter().map(end).collect())
    }

    /// Commits and returns nothing, or rolls back and returns the items whose leases are lost.
    async fn settle_on(
        &self,
        connection: &mut PgConnection,
        settlements: &[Settlement],
        values: &[BoundValue],
        lost: &HashSet<i64>,
    ) -> Result<Vec<i64>, BoxError> {
        let held: Vec<(&Settlement, &BoundValue)> = settlements
            .iter()
            .zip(values)
            .filter(|(settlement, _)| !lost.contains(&settlement.lease.id))
            .collect();
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = connection.begin().await.map_err(Error::from)?;
        let mut left: Vec<&BoundValue> = held.iter().map(|(_, value)| *value).collect();
        while let Some(first) = left.first() {
            let write = Arc::clone(&first.write);
            let (own, others): (Vec<_>, Vec<_>) = left
                .into_iter()
                .partition(|value| Arc::ptr_eq(&value.write, &write));
            let values = own.iter().map(|bound| Arc::clone(&bound.value));
            write(&mut tx, values.collect()).await?;
            left = others;
        }
        crashpoint::point!("batch_effect.before_settle").map_err(Error::from)?;
        let settlements = held.into_iter().map(|(settlement, _)| settlement);
        let settled = self
            .queue
            .settle_these_in(&mut tx, &self.worker, settlements.collect())
            .await?;
        if !settled.lost.is_empty() {
            tx.rollback().await.map_err(Error::from)?;
            return Ok(settled.lost.iter().map(|lost| lost.id).collect());
        }
        crashpoint::point!("batch_effect.before_commit").map_err(Error::from)?;
        tx.commit().await.map_err(Error::from)?;
        crashpoint::point!("batch_effect.after_commit").map_err(Error::from)?;
        if !settled.busy_keys.is_empty() {
            // The receiver lives as long as the worker; without it, the periodic sweep finds the keys.
            let _ = self.busy_keys.send(settled.busy_keys);
        }
        Ok(Vec::new())
    }
}
