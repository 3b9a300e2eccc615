//! Writes that many items make in one statement, committed together with their settlings.
//!
//! A handler answers for one item, with a value to be written. While one transaction commits, the values of those who
//! finish meanwhile gather for the next one. A lease that turns out to be lost spoils the transaction, which is made anew
//! without its value. If the write is refused, each is tried alone, so that only the one at fault pays for it.

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
use super::executor::overdue;
use super::{BoxError, Verdict};
use crate::Error;
use crate::conn::ConnGuard;
use crate::error::{is_conflict, is_transient};
use crate::lease::{Queue, Settlement};

/// Where several finish at a time, others are about to: a group gathers for as long as they keep coming, up to this long.
/// Each group has its cost, however many share it.
const GATHER: Duration = Duration::from_millis(20);

/// Nobody came for this long: nobody keeps coming.
const QUIET: Duration = Duration::from_millis(2);

/// Two groups that wait for each other's rows: the loser tries again, this often.
const CONFLICTS: u32 = 5;

/// A value on its way to be written.
pub(super) type Value = Arc<dyn Any + Send + Sync>;

/// Writes many values in the transaction that settles their items.
pub(super) type Write = dyn for<'t> Fn(&'t mut PgConnection, Vec<Value>) -> BoxFuture<'t, Result<(), BoxError>>
    + Send
    + Sync;

/// What a settling carries, and who writes it.
#[derive(Clone)]
pub(super) struct Carried {
    pub value: Value,
    pub write: Arc<Write>,
}

/// A settling that waits for its group.
pub(super) struct Joint {
    pub settlement: Settlement,
    pub carried: Carried,
    pub reply: oneshot::Sender<(Settlement, Ended)>,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Ended {
    /// Settled and written.
    Well,
    /// The lease was lost: nothing was written.
    Lost,
    /// The database is away or busy.
    NotNow,
    /// The write was refused for a reason of its own.
    Refused(Verdict),
}

/// The one who settles groups. Ends with the last who could bring it something.
pub(super) struct BatchEffect {
    pub queue: Queue,
    pub pool: PgPool,
    pub worker: String,
    pub patience: Duration,
    pub busy_keys: mpsc::UnboundedSender<Vec<String>>,
    pub joints: mpsc::UnboundedReceiver<Joint>,
    pub most: usize,
}

impl BatchEffect {
    pub async fn run(mut self) {
        let mut group = Vec::with_capacity(self.most);
        let mut several = false;
        while self.joints.recv_many(&mut group, self.most).await > 0 {
            if several {
                self.gather(&mut group).await;
            }
            several = group.len() > 1;
            self.settle(group.drain(..)).await;
        }
    }

    async fn gather(&mut self, group: &mut Vec<Joint>) {
        let until = Instant::now() + GATHER;
        while group.len() < self.most && Instant::now() < until {
            let room = self.most - group.len();
            let more = timeout(QUIET, self.joints.recv_many(group, room)).await;
            if let Ok(0) | Err(_) = more {
                break;
            }
        }
    }

    async fn settle(&self, group: impl Iterator<Item = Joint>) {
        let (mut settlements, mut carried, mut replies) = (Vec::new(), Vec::new(), Vec::new());
        for joint in group {
            settlements.push(joint.settlement);
            carried.push(joint.carried);
            replies.push(joint.reply);
        }
        let ended = match self.commit(&settlements, &carried).await {
            Ok(ended) => ended,
            Err(Ended::Refused(_)) if settlements.len() > 1 => {
                let mut ended = Vec::with_capacity(settlements.len());
                for (settlement, carried) in settlements.iter().zip(&carried) {
                    let alone = std::slice::from_ref(settlement);
                    let written = self.commit(alone, std::slice::from_ref(carried)).await;
                    ended.push(written.map_or_else(|end| end, |mut one| one.remove(0)));
                }
                ended
            }
            Err(Ended::Refused(verdict)) => vec![Ended::Refused(verdict)],
            Err(_) => settlements.iter().map(|_| Ended::NotNow).collect(),
        };
        for ((settlement, reply), ended) in settlements.into_iter().zip(replies).zip(ended) {
            let _ = reply.send((settlement, ended));
        }
    }

    /// What came of each; or what kept all of them from being settled.
    async fn commit(
        &self,
        settlements: &[Settlement],
        carried: &[Carried],
    ) -> Result<Vec<Ended>, Ended> {
        let mut conflicts = 0;
        loop {
            // A write is the handler's own code, and may panic like the handler itself.
            let trying = AssertUnwindSafe(self.try_once(settlements, carried)).catch_unwind();
            let error = match trying.await {
                Ok(Ok(ended)) => return Ok(ended),
                Ok(Err(error)) => error,
                Err(panic) => return Err(Ended::Refused(panicked(&*panic))),
            };
            let conflict = error.downcast_ref().is_some_and(is_conflict)
                || matches!(error.downcast_ref(), Some(Error::Database(error)) if is_conflict(error));
            if conflict && conflicts < CONFLICTS {
                conflicts += 1;
            } else if is_transient(&*error) {
                tracing::warn!(%error, table = self.queue.table().name, items = settlements.len(), "settling is put off");
                return Err(Ended::NotNow);
            } else {
                return Err(Ended::Refused(unexpected(error)));
            }
        }
    }

    /// Once for all; once more for each time that leases turn out to be lost.
    async fn try_once(
        &self,
        settlements: &[Settlement],
        carried: &[Carried],
    ) -> Result<Vec<Ended>, BoxError> {
        let mut lost = HashSet::new();
        loop {
            let mut held = ConnGuard::acquire(&self.pool).await?;
            let settling = self.settle_on(&mut held, settlements, carried, &lost);
            let Ok(settled) = timeout(self.patience, settling).await else {
                return Err(Box::new(overdue(self.patience)));
            };
            // A write's own error says nothing about the connection; the pool looks at it.
            held.release();
            let newly_lost = settled?;
            if newly_lost.is_empty() {
                break;
            }
            lost.extend(newly_lost);
        }
        let end = |settlement: &Settlement| match lost.contains(&settlement.lease.id) {
            true => Ended::Lost,
            false => Ended::Well,
        };
        Ok(settlements.iter().map(end).collect())
    }

    /// Commits, unless there are items whose leases are lost: then it names them.
    async fn settle_on(
        &self,
        connection: &mut PgConnection,
        settlements: &[Settlement],
        carried: &[Carried],
        lost: &HashSet<i64>,
    ) -> Result<Vec<i64>, BoxError> {
        let held: Vec<(&Settlement, &Carried)> = settlements
            .iter()
            .zip(carried)
            .filter(|(settlement, _)| !lost.contains(&settlement.lease.id))
            .collect();
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let mut tx = connection.begin().await.map_err(Error::from)?;
        let mut left: Vec<&Carried> = held.iter().map(|(_, carried)| *carried).collect();
        while let Some(first) = left.first() {
            let write = Arc::clone(&first.write);
            let (own, others): (Vec<_>, Vec<_>) = left
                .into_iter()
                .partition(|carried| Arc::ptr_eq(&carried.write, &write));
            let values = own.iter().map(|carried| Arc::clone(&carried.value));
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
            // The receiver lives as long as the worker; without it, the sweep finds them.
            let _ = self.busy_keys.send(settled.busy_keys);
        }
        Ok(Vec::new())
    }
}
