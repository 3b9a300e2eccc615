//! Collects verdicts and settles them together: while one batch commits, the next one gathers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::backpressure::Backpressure;
use super::registry::Registry;
use crate::Error;
use crate::catch_panic::catch_panic;
use crate::conn::{IDLE_TIMEOUT, StickyConn};
use crate::lease::{Outcome, Queue, Settled, Settlement, WorkTable};

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(super) struct Settler {
    pub queue: Queue,
    pub connection: StickyConn,
    pub worker: String,
    pub flow: Arc<Backpressure>,
    pub registry: Arc<Registry>,
    pub settlements: mpsc::UnboundedReceiver<Settlement>,
    pub busy_keys: mpsc::UnboundedSender<Vec<String>>,
    pub most: usize,
    /// The database has not come back in time: leave the rest to the leases.
    pub give_up: CancellationToken,
}

impl Settler {
    /// Settles until no sender is left.
    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(self.most);
        while self.next(&mut batch).await > 0 {
            self.settle(&mut batch).await;
            self.registry
                .remove(batch.iter().map(|settlement| &settlement.lease));
            self.flow.settled(batch.len());
            batch.clear();
        }
    }

    /// The connection is given back when nothing is to be settled for a while.
    async fn next(&mut self, batch: &mut Vec<Settlement>) -> usize {
        if self.connection.is_held() {
            let receiving = self.settlements.recv_many(batch, self.most);
            match tokio::time::timeout(IDLE_TIMEOUT, receiving).await {
                Ok(received) => return received,
                Err(_) => self.connection.release(),
            }
        }
        self.settlements.recv_many(batch, self.most).await
    }

    async fn settle(&mut self, batch: &mut [Settlement]) {
        match self.persist(batch).await {
            Ok(settled) => self.count(batch, settled),
            // One that the database refuses must not keep the others from being settled.
            Err(error) if batch.len() > 1 && !error.is_transient() => {
                for settlement in batch {
                    let alone = std::slice::from_mut(settlement);
                    match self.persist(alone).await {
                        Ok(settled) => self.count(alone, settled),
                        Err(error) => self.refuse(&alone[0], &error),
                    }
                }
            }
            Err(error) => batch
                .iter()
                .for_each(|settlement| self.refuse(settlement, &error)),
        }
    }

    /// Repeats while the database is away.
    async fn persist(&mut self, batch: &[Settlement]) -> crate::Result<Settled> {
        let mut wait = FIRST_WAIT;
        loop {
            let settling = self
                .queue
                .settle_batch(&mut self.connection, &self.worker, batch);
            match catch_panic("settling", settling).await {
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, table = self.queue.table().name, items = batch.len(), "settling waits");
                    tokio::select! {
                        () = tokio::time::sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                        () = self.give_up.cancelled() => return Err(error),
                    }
                }
                result => return result,
            }
        }
    }

    fn count(&self, batch: &mut [Settlement], settled: Settled) {
        let table = self.queue.table().name;
        let lost: HashSet<i64> = settled.lost.iter().map(|lost| lost.id).collect();
        let held = |settlement: &&mut Settlement| !lost.contains(&settlement.lease.id);
        let mut done = 0;
        for settlement in batch.iter_mut().filter(held) {
            match settlement.outcome {
                Outcome::Done => done += 1,
                _ => count_settled(self.queue.table(), &settlement.outcome, 1),
            }
            settlement.told.tell();
        }
        if done > 0 {
            count_settled(self.queue.table(), &Outcome::Done, done);
        }
        if !settled.lost.is_empty() {
            // After a broken connection this can also mean that the first try had committed.
            metrics::counter!("postrider_leases_lost_total", "table" => table)
                .increment(settled.lost.len() as u64);
            tracing::warn!(
                table,
                items = settled.lost.len(),
                "leases were lost before settling; nothing was changed"
            );
        }
        if !settled.busy_keys.is_empty() {
            // The receiver lives as long as the worker; without it, the sweep finds them.
            let _ = self.busy_keys.send(settled.busy_keys);
        }
        if batch
            .iter()
            .any(|settlement| settlement.lease.ordering_key.is_some())
        {
            self.flow.hint.notify_one();
        }
    }

    fn refuse(&self, settlement: &Settlement, error: &Error) {
        tracing::error!(
            %error,
            table = self.queue.table().name,
            item = settlement.lease.id(),
            "could not be settled; it is tried again when its lease has run out"
        );
    }
}

/// Marks settled items in the metrics.
pub(super) fn count_settled(table: &'static WorkTable, outcome: &Outcome, items: u64) {
    metrics::counter!("postrider_settled_total", "table" => table.name, "outcome" => name(outcome))
        .increment(items);
}

const fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Retry { .. } => "retry",
        Outcome::Snooze { .. } => "snooze",
        Outcome::Dead { .. } | Outcome::Abandoned { .. } => "dead",
        Outcome::GiveBack => "given_back",
    }
}
