//! Runs handlers over claimed items and sends their verdicts to the settler.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all, select_all};
use postrider_crashpoint as crashpoint;
use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backpressure::Backpressure;
use super::batch_effect::{BoundValue, EffectResult, PendingEffect};
use super::decide::{decide, panicked, unexpected};
use super::registry::Registry;
use super::settler::count_settled;
use super::{BoxError, Effect, Handled, Handler, Verdict};
use crate::conn::ConnGuard;
use crate::error::is_transient;
use crate::failure::{Category, Failure};
use crate::lease::{Item, Lease, Outcome, Queue, Settlement};
use crate::{Error, Result};

/// When the database can't accept a settlement now, the whole item is retried after this long.
const SETTLE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// A claimed item on its way to a handler.
pub(super) struct Job {
    pub lease: Lease,
    pub item: Item,
    pub lost: CancellationToken,
    pub weight: usize,
}

/// What all tasks of a worker share.
pub(super) struct Executor {
    pub queue: Queue,
    pub pool: PgPool,
    /// The worker's id, written to every lease.
    pub worker: String,
    pub backpressure: Arc<Backpressure>,
    pub registry: Arc<Registry>,
    pub settle: mpsc::UnboundedSender<Settlement>,
    /// For answers with a value.
    pub batch_effects: mpsc::UnboundedSender<PendingEffect>,
    /// Ordering keys whose next item could not be promoted yet.
    pub busy_keys: mpsc::UnboundedSender<Vec<String>>,
    /// Deadline of an effect and its settlement.
    pub call_timeout: Duration,
    /// Cancelled: start nothing more.
    pub stop: CancellationToken,
    /// Cancelled: abort running handlers.
    pub abort: CancellationToken,
}

impl Executor {
    /// Takes jobs from the buffer until it is closed, as many at a time as the handler accepts.
    pub async fn consume(&self, handler: &Handler, jobs: &Mutex<mpsc::UnboundedReceiver<Job>>) {
        let max_batch = handler.max_batch();
        let mut batch = Vec::with_capacity(max_batch);
        loop {
            if jobs.lock().await.recv_many(&mut batch, max_batch).await == 0 {
                return;
            }
            self.backpressure.started(batch.len());
            self.run(handler, std::mem::take(&mut batch)).await;
        }
    }

    /// Runs the handler and sends on the verdicts.
    pub async fn run(&self, handler: &Handler, jobs: Vec<Job>) {
        let weight = jobs.iter().map(|job| job.weight).sum();
        let mut leases = Vec::with_capacity(jobs.len());
        let mut items = Vec::with_capacity(jobs.len());
        let mut lost = Vec::with_capacity(jobs.len());
        for job in jobs {
            lost.push(job.lost);
            leases.push(job.lease);
            items.push(job.item);
        }
        // The hooks for dead and settled items need the item again afterwards.
        let copies: Vec<Item> = if handler.needs_item_copy() {
            items.clone()
        } else {
            Vec::new()
        };

        let started = Instant::now();
        let answers = if self.stop.is_cancelled() {
            None
        } else {
            tokio::select! {
                biased;
                () = first_lost(&leases, &lost) => {
                    self.drop_lost(&leases);
                    self.backpressure.handled(weight);
                    return;
                }
                () = self.abort.cancelled() => None,
                answers = handler.run(items) => Some(answers),
            }
        };
        self.backpressure.handled(weight);
        let took = started.elapsed();
        match answers {
            None => {
                for lease in leases {
                    self.send_to_settler(Settlement::new(lease, Outcome::Release));
                }
            }
            Some(answers) => {
                metrics::histogram!("postrider_handler_seconds", "table" => self.queue.table().name)
                    .record(took.as_secs_f64());
                let mut copies = copies.into_iter();
                let value = answers.iter().any(|handled| handled.value.is_some());
                let writing = leases.into_iter().zip(&lost).zip(answers).filter_map(
                    |((lease, lost), handled)| {
                        self.apply(handler, lease, copies.next(), handled, took, lost)
                    },
                );
                if value {
                    // Values form a batch only if nobody waits for the one before.
                    join_all(writing).await;
                } else {
                    for writing in writing {
                        writing.await;
                    }
                }
            }
        }
    }

    /// Marks an item dead without running it.
    pub async fn mark_dead(&self, handler: &Handler, job: Job, failure: Failure) {
        self.backpressure.handled(job.weight);
        let effects = handler
            .dead_effect(&job.item, &failure)
            .into_iter()
            .collect();
        let outcome = Outcome::Abandoned { failure };
        let after_commit = handler.after_commit(Some(&job.item), &outcome);
        let settlement = Settlement::new(job.lease, outcome).after_commit(after_commit);
        if let Some((lease, verdict)) = self.settle(settlement, effects, &job.lost).await {
            self.snooze_rejected(lease, &verdict);
        }
    }

    /// Sends the verdict to the settler if that is all there is to do, as for most items. Otherwise returns the
    /// remaining work, boxed: its state is large, and would be moved around with many items in a row.
    fn apply<'a>(
        &'a self,
        handler: &'a Handler,
        lease: Lease,
        item: Option<Item>,
        handled: Handled,
        took: Duration,
        lost: &'a CancellationToken,
    ) -> Option<BoxFuture<'a, ()>> {
        let outcome = decide(
            &handler.policy,
            handled.verdict,
            lease.attempts,
            rand::random(),
        );
        let mut effects: Vec<Effect> = handled.effect.into_iter().collect();
        if let (Some(item), Outcome::Dead { failure }) = (&item, &outcome) {
            effects.extend(handler.dead_effect(item, failure));
        }
        let after_commit = handler.after_commit(item.as_ref(), &outcome);
        let settlement = Settlement::new(lease, outcome)
            .took(took)
            .after_commit(after_commit);
        let value = handled.value.map(|value| handler.bind_value(value));
        if effects.is_empty() && value.is_none() {
            self.send_to_settler(settlement);
            return None;
        }
        let writing = async move {
            let refused = self.write(settlement, effects, value, lost).await;
            if let Some((lease, verdict)) = refused {
                self.apply_rejection(handler, lease, verdict, item, took, lost)
                    .await;
            }
        };
        Some(writing.boxed())
    }

    /// Settles together with the handler's writes. Returns the lease if they were rejected.
    async fn write(
        &self,
        settlement: Settlement,
        mut effects: Vec<Effect>,
        value: Option<BoundValue>,
        lost: &CancellationToken,
    ) -> Option<(Lease, Verdict)> {
        match value {
            Some(value) if effects.is_empty() => self.settle_in_batch(settlement, value).await,
            Some(BoundValue { value, write }) => {
                effects.push(Box::new(move |tx| {
                    Box::pin(async move { write(tx, vec![value]).await })
                }));
                self.settle(settlement, effects, lost).await
            }
            None => self.settle(settlement, effects, lost).await,
        }
    }

    /// Handles a rejected effect: a failed attempt like any other.
    async fn apply_rejection(
        &self,
        handler: &Handler,
        lease: Lease,
        verdict: Verdict,
        item: Option<Item>,
        took: Duration,
        lost: &CancellationToken,
    ) {
        let outcome = decide(&handler.policy, verdict, lease.attempts, rand::random());
        let effects = match (&item, &outcome) {
            (Some(item), Outcome::Dead { failure }) => {
                handler.dead_effect(item, failure).into_iter().collect()
            }
            _ => Vec::new(),
        };
        let after_commit = handler.after_commit(item.as_ref(), &outcome);
        let settlement = Settlement::new(lease, outcome)
            .took(took)
            .after_commit(after_commit);
        if let Some((lease, verdict)) = self.settle(settlement, effects, lost).await {
            self.snooze_rejected(lease, &verdict);
        }
    }

    fn snooze_rejected(&self, lease: Lease, verdict: &Verdict) {
        tracing::error!(
            table = self.queue.table().name,
            item = lease.id,
            ?verdict,
            "the on_dead effect was rejected; the item is retried. Fix the effect"
        );
        self.send_to_settler(Settlement::new(
            lease,
            Outcome::Snooze {
                after: SETTLE_RETRY_DELAY,
            },
        ));
    }

    /// Settles together with these effects. Returns the lease if an effect was rejected.
    async fn settle(
        &self,
        mut settlement: Settlement,
        effects: Vec<Effect>,
        lost: &CancellationToken,
    ) -> Option<(Lease, Verdict)> {
        if effects.is_empty() {
            self.send_to_settler(settlement);
            return None;
        }
        // An effect is the handler's own code and may panic.
        let settling = AssertUnwindSafe(self.settle_with(&settlement, effects)).catch_unwind();
        let Some(settled) = lost.run_until_cancelled(settling).await else {
            self.drop_lost(std::slice::from_ref(&settlement.lease));
            return None;
        };
        let settled = match settled {
            Ok(settled) => settled,
            Err(panic) => return Some((settlement.lease, panicked(&*panic))),
        };
        match settled {
            Ok(()) => {
                count_settled(self.queue.table(), &settlement.outcome, 1);
                settlement.after_commit.run();
                self.forget(std::slice::from_ref(&settlement.lease));
                None
            }
            Err(error) if matches!(error.downcast_ref(), Some(Error::LostLease(_))) => {
                self.drop_lost(std::slice::from_ref(&settlement.lease));
                None
            }
            // However the effect wrapped the error: an outage of the database costs no attempt.
            Err(error) if is_transient(&*error) => {
                tracing::warn!(%error, table = self.queue.table().name, "the database is unavailable; the item is retried shortly");
                self.send_to_settler(Settlement::new(
                    settlement.lease,
                    Outcome::Snooze {
                        after: SETTLE_RETRY_DELAY,
                    },
                ));
                None
            }
            Err(error) => Some((settlement.lease, unexpected(error))),
        }
    }

    /// Settles in one transaction with others that have a value. A lease lost meanwhile is detected there.
    async fn settle_in_batch(
        &self,
        settlement: Settlement,
        value: BoundValue,
    ) -> Option<(Lease, Verdict)> {
        let (reply, answer) = oneshot::channel();
        let effect = PendingEffect {
            settlement,
            value,
            reply,
        };
        if let Err(unsent) = self.batch_effects.send(effect) {
            self.forget(std::slice::from_ref(&unsent.0.settlement.lease));
            return None;
        }
        let (mut settlement, result) = answer.await.ok()?;
        match result {
            EffectResult::Committed => {
                count_settled(self.queue.table(), &settlement.outcome, 1);
                settlement.after_commit.run();
                if settlement.lease.ordering_key.is_some() {
                    self.backpressure.hint.notify_one();
                }
                self.forget(std::slice::from_ref(&settlement.lease));
            }
            EffectResult::LeaseLost => self.drop_lost(std::slice::from_ref(&settlement.lease)),
            EffectResult::Unavailable => {
                let later = Outcome::Snooze {
                    after: SETTLE_RETRY_DELAY,
                };
                self.send_to_settler(Settlement::new(settlement.lease, later));
            }
            EffectResult::Rejected(verdict) => return Some((settlement.lease, verdict)),
        }
        None
    }

    async fn settle_with(
        &self,
        settlement: &Settlement,
        effects: Vec<Effect>,
    ) -> Result<(), BoxError> {
        let mut held = ConnGuard::acquire(&self.pool).await?;
        let settling = self.settle_on(&mut held, settlement, effects);
        // Leases are renewed, so an effect on a silent connection would otherwise run forever.
        match tokio::time::timeout(self.call_timeout, settling).await {
            Ok(settled) => {
                // An effect's own error says nothing about the connection; the pool checks it.
                held.release();
                settled
            }
            Err(_) => Err(Box::new(effect_timed_out(self.call_timeout))),
        }
    }

    async fn settle_on(
        &self,
        connection: &mut PgConnection,
        settlement: &Settlement,
        effects: Vec<Effect>,
    ) -> Result<(), BoxError> {
        let mut tx = connection.begin().await.map_err(Error::from)?;
        for effect in effects {
            effect(&mut tx).await?;
        }
        crashpoint::point!("effect.before_settle").map_err(Error::from)?;
        let settled = self
            .queue
            .settle_many_in(&mut tx, &self.worker, std::slice::from_ref(settlement))
            .await?;
        if let Some(lost) = settled.lost.first() {
            return Err(Box::new(Error::from(*lost)));
        }
        crashpoint::point!("effect.before_commit").map_err(Error::from)?;
        tx.commit().await.map_err(Error::from)?;
        if !settled.busy_keys.is_empty() {
            // The receiver lives as long as the worker; without it, the periodic sweep finds the keys.
            let _ = self.busy_keys.send(settled.busy_keys);
        }
        crashpoint::point!("effect.after_commit").map_err(Error::from)?;
        if settlement.lease.ordering_key.is_some() {
            self.backpressure.hint.notify_one();
        }
        Ok(())
    }

    fn send_to_settler(&self, settlement: Settlement) {
        if let Err(unsent) = self.settle.send(settlement) {
            // The settler outlives the handlers. If it is gone, the lease expires and the item is rescued.
            self.forget(std::slice::from_ref(&unsent.0.lease));
        }
    }

    /// Discards results of leases that are no longer ours: their new holders decide.
    fn drop_lost(&self, leases: &[Lease]) {
        metrics::counter!("postrider_leases_lost_total", "table" => self.queue.table().name)
            .increment(leases.len() as u64);
        for lease in leases {
            tracing::warn!(
                table = self.queue.table().name,
                item = lease.id,
                "lease lost; the handler's result was discarded"
            );
        }
        self.forget(leases);
    }

    fn forget(&self, leases: &[Lease]) {
        self.registry.remove(leases.iter());
        self.backpressure.settled(leases.len());
    }
}

/// Leases that were claimed together expire together: the first of each claim stands for the others.
async fn first_lost(leases: &[Lease], lost: &[CancellationToken]) {
    let claims = leases.chunk_by(|one, next| one.fence == next.fence);
    let mut place = 0;
    let firsts: Vec<_> = claims
        .filter_map(|claim| {
            let first = lost.get(place);
            place += claim.len();
            first.map(|lost| Box::pin(lost.cancelled()))
        })
        .collect();
    if firsts.is_empty() {
        return std::future::pending().await;
    }
    select_all(firsts).await;
}

/// An effect that exceeds its deadline is a failed attempt, so it can't go on forever.
pub(super) fn effect_timed_out(call_timeout: Duration) -> Failure {
    let limit = humantime::format_duration(call_timeout);
    let message = format!("the effect and its settlement took longer than {limit}");
    Failure::with_category("TIMEOUT", Category::System, message)
}
