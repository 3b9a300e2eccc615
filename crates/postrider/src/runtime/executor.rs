//! Runs handlers over claimed items and passes their verdicts on.

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
use super::batch_effect::{Carried, Ended, Joint};
use super::decide::{decide, panicked, unexpected};
use super::registry::Registry;
use super::settler::count_settled;
use super::{BoxError, Effect, Handled, Handler, Verdict};
use crate::conn::ConnGuard;
use crate::error::is_transient;
use crate::failure::{Category, Failure};
use crate::lease::{Item, Lease, Outcome, Queue, Settlement};
use crate::{Error, Result};

/// A settling that the database could not take now is tried again with the whole item after this long.
const PUT_OFF: Duration = Duration::from_secs(1);

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
    pub flow: Arc<Backpressure>,
    pub registry: Arc<Registry>,
    pub settle: mpsc::UnboundedSender<Settlement>,
    /// For those with something to write.
    pub together: mpsc::UnboundedSender<Joint>,
    /// Ordering keys whose next item could not be made due yet.
    pub busy_keys: mpsc::UnboundedSender<Vec<String>>,
    /// How long an effect and its settling may take.
    pub patience: Duration,
    /// Start nothing more.
    pub stop: CancellationToken,
    /// Let go of what runs.
    pub kill: CancellationToken,
}

impl Executor {
    /// Takes jobs from the buffer until it is closed, as many at a time as the handler likes.
    pub async fn consume(&self, handler: &Handler, jobs: &Mutex<mpsc::UnboundedReceiver<Job>>) {
        let most = handler.most();
        let mut batch = Vec::with_capacity(most);
        loop {
            if jobs.lock().await.recv_many(&mut batch, most).await == 0 {
                return;
            }
            self.flow.started(batch.len());
            self.run(handler, std::mem::take(&mut batch)).await;
        }
    }

    /// Runs the handler over these and passes on the verdicts.
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
        // Whoever is told of deaths and settlings needs the item once more afterwards.
        let kept: Vec<Item> = if handler.wants_the_item_again() {
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
                    self.abandon(&leases);
                    self.flow.handled(weight);
                    return;
                }
                () = self.kill.cancelled() => None,
                answers = handler.run(items) => Some(answers),
            }
        };
        self.flow.handled(weight);
        let took = started.elapsed();
        match answers {
            None => {
                for lease in leases {
                    self.pass_on(Settlement::new(lease, Outcome::GiveBack));
                }
            }
            Some(answers) => {
                metrics::histogram!("postrider_handler_seconds", "table" => self.queue.table().name)
                    .record(took.as_secs_f64());
                let mut kept = kept.into_iter();
                let carries = answers.iter().any(|handled| handled.carries.is_some());
                let writing = leases.into_iter().zip(&lost).zip(answers).filter_map(
                    |((lease, lost), handled)| {
                        self.judge(handler, lease, kept.next(), handled, took, lost)
                    },
                );
                if carries {
                    // Values gather only if nobody waits for the one before.
                    join_all(writing).await;
                } else {
                    for writing in writing {
                        writing.await;
                    }
                }
            }
        }
    }

    /// Gives up on an item without running it.
    pub async fn give_up(&self, handler: &Handler, job: Job, failure: Failure) {
        self.flow.handled(job.weight);
        let effects = handler
            .effect_of_death(&job.item, &failure)
            .into_iter()
            .collect();
        let outcome = Outcome::Abandoned { failure };
        let told = handler.told(Some(&job.item), &outcome);
        let settlement = Settlement::new(job.lease, outcome).told(told);
        if let Some((lease, verdict)) = self.settle(settlement, effects, &job.lost).await {
            self.put_off(lease, &verdict);
        }
    }

    /// Passes the verdict on if that is all there is to do, as for most items; what else is to be written is what it
    /// returns, in a box: its state is large, and many items in a row would be moved about with it.
    fn judge<'a>(
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
            effects.extend(handler.effect_of_death(item, failure));
        }
        let told = handler.told(item.as_ref(), &outcome);
        let settlement = Settlement::new(lease, outcome).took(took).told(told);
        let carried = handled.carries.map(|value| handler.carried(value));
        if effects.is_empty() && carried.is_none() {
            self.pass_on(settlement);
            return None;
        }
        let writing = async move {
            let refused = self.write(settlement, effects, carried, lost).await;
            if let Some((lease, verdict)) = refused {
                self.judge_refused(handler, lease, verdict, item, took, lost)
                    .await;
            }
        };
        Some(writing.boxed())
    }

    /// Settles together with what the handler wants written. Hands the lease back if that was refused.
    async fn write(
        &self,
        settlement: Settlement,
        mut effects: Vec<Effect>,
        carried: Option<Carried>,
        lost: &CancellationToken,
    ) -> Option<(Lease, Verdict)> {
        match carried {
            Some(carried) if effects.is_empty() => self.join(settlement, carried).await,
            Some(Carried { value, write }) => {
                effects.push(Box::new(move |tx| {
                    Box::pin(async move { write(tx, vec![value]).await })
                }));
                self.settle(settlement, effects, lost).await
            }
            None => self.settle(settlement, effects, lost).await,
        }
    }

    /// The effect was refused for a reason of its own: a failed attempt like any other.
    async fn judge_refused(
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
                handler.effect_of_death(item, failure).into_iter().collect()
            }
            _ => Vec::new(),
        };
        let told = handler.told(item.as_ref(), &outcome);
        let settlement = Settlement::new(lease, outcome).took(took).told(told);
        if let Some((lease, verdict)) = self.settle(settlement, effects, lost).await {
            self.put_off(lease, &verdict);
        }
    }

    fn put_off(&self, lease: Lease, verdict: &Verdict) {
        tracing::error!(
            table = self.queue.table().name,
            item = lease.id,
            ?verdict,
            "what was to be written at the item's death was refused; it is tried again"
        );
        self.pass_on(Settlement::new(lease, Outcome::Snooze { after: PUT_OFF }));
    }

    /// Settles together with these effects. Hands the lease back if an effect was refused.
    async fn settle(
        &self,
        mut settlement: Settlement,
        effects: Vec<Effect>,
        lost: &CancellationToken,
    ) -> Option<(Lease, Verdict)> {
        if effects.is_empty() {
            self.pass_on(settlement);
            return None;
        }
        // An effect is the handler's own code, and may panic like the handler itself.
        let settling = AssertUnwindSafe(self.settle_with(&settlement, effects)).catch_unwind();
        let Some(settled) = lost.run_until_cancelled(settling).await else {
            self.abandon(std::slice::from_ref(&settlement.lease));
            return None;
        };
        let settled = match settled {
            Ok(settled) => settled,
            Err(panic) => return Some((settlement.lease, panicked(&*panic))),
        };
        match settled {
            Ok(()) => {
                count_settled(self.queue.table(), &settlement.outcome, 1);
                settlement.told.tell();
                self.let_go(std::slice::from_ref(&settlement.lease));
                None
            }
            Err(error) if matches!(error.downcast_ref(), Some(Error::LostLease(_))) => {
                self.abandon(std::slice::from_ref(&settlement.lease));
                None
            }
            // Whatever the effect wrapped it in: an outage of the database costs no attempt.
            Err(error) if is_transient(&*error) => {
                tracing::warn!(%error, table = self.queue.table().name, "settling is put off");
                self.pass_on(Settlement::new(
                    settlement.lease,
                    Outcome::Snooze { after: PUT_OFF },
                ));
                None
            }
            Err(error) => Some((settlement.lease, unexpected(error))),
        }
    }

    /// The same with others, whose values are written in the same breath. A lease that is lost meanwhile is found to be.
    async fn join(&self, settlement: Settlement, carried: Carried) -> Option<(Lease, Verdict)> {
        let (reply, answer) = oneshot::channel();
        let joint = Joint {
            settlement,
            carried,
            reply,
        };
        if let Err(unsent) = self.together.send(joint) {
            self.let_go(std::slice::from_ref(&unsent.0.settlement.lease));
            return None;
        }
        let (mut settlement, ended) = answer.await.ok()?;
        match ended {
            Ended::Well => {
                count_settled(self.queue.table(), &settlement.outcome, 1);
                settlement.told.tell();
                if settlement.lease.ordering_key.is_some() {
                    self.flow.hint.notify_one();
                }
                self.let_go(std::slice::from_ref(&settlement.lease));
            }
            Ended::Lost => self.abandon(std::slice::from_ref(&settlement.lease)),
            Ended::NotNow => {
                let later = Outcome::Snooze { after: PUT_OFF };
                self.pass_on(Settlement::new(settlement.lease, later));
            }
            Ended::Refused(verdict) => return Some((settlement.lease, verdict)),
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
        // Renewed leases would let an effect whose connection went silent be waited for without end.
        match tokio::time::timeout(self.patience, settling).await {
            Ok(settled) => {
                // An effect's own error says nothing about the connection; the pool looks at it.
                held.release();
                settled
            }
            Err(_) => Err(Box::new(overdue(self.patience))),
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
            // The receiver lives as long as the worker; without it, the sweep finds them.
            let _ = self.busy_keys.send(settled.busy_keys);
        }
        crashpoint::point!("effect.after_commit").map_err(Error::from)?;
        if settlement.lease.ordering_key.is_some() {
            self.flow.hint.notify_one();
        }
        Ok(())
    }

    fn pass_on(&self, settlement: Settlement) {
        if let Err(unsent) = self.settle.send(settlement) {
            // The settler outlives the handlers; should it be gone, the lease runs out and the item is found again.
            self.let_go(std::slice::from_ref(&unsent.0.lease));
        }
    }

    /// The leases are no longer ours: whatever the handler did will be judged by whoever holds them now.
    fn abandon(&self, leases: &[Lease]) {
        metrics::counter!("postrider_leases_lost_total", "table" => self.queue.table().name)
            .increment(leases.len() as u64);
        for lease in leases {
            tracing::warn!(
                table = self.queue.table().name,
                item = lease.id,
                "lease lost; its result does not count"
            );
        }
        self.let_go(leases);
    }

    fn let_go(&self, leases: &[Lease]) {
        self.registry.remove(leases.iter());
        self.flow.settled(leases.len());
    }
}

/// Leases that were claimed together run out together: the first of each claim speaks for the others.
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

/// An effect that takes longer than a lease: a failed attempt, so that it can't go on for ever.
pub(super) fn overdue(patience: Duration) -> Failure {
    let patience = humantime::format_duration(patience);
    let message = format!("the effect and its settling did not end within {patience}");
    Failure::with_category("TIMEOUT", Category::System, message)
}
