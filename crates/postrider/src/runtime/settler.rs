//! Collects verdicts and settles them together: while one batch commits, the next one collects.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::backpressure::Backpressure;
use super::registry::Registry;
use crate::Error;
use crate::conn::{IDLE_TIMEOUT, StickyConn};
use crate::internal::catch_panic;
use crate::lease::{Outcome, Queue, Settled, Settlement, WorkTable};

const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

pub(super) struct Settler {
    pub queue: Queue,
    pub connection: StickyConn,
    pub worker: String,
    pub backpressure: Arc<Backpressure>,
    pub registry: Arc<Registry>,
    pub settlements: mpsc::UnboundedReceiver<Settlement>,
    pub busy_keys: mpsc::UnboundedSender<Vec<String>>,
    pub max_batch: usize,
    /// Cancelled when the database didn't come back in time: leave the rest to their leases.
    pub give_up: CancellationToken,
}

impl Settler {
    /// Settles until no sender is left.
    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(self.max_batch);
        while self.next(&mut batch).await > 0 {
            self.settle(&mut batch).await;
            self.registry
                .remove(batch.iter().map(|settlement| &settlement.lease));
            self.backpressure.settled(batch.len());
            batch.clear();
        }
    }

    /// Releases the connection when there is nothing to settle for a while.
    async fn next(&mut self, batch: &mut Vec<Settlement>) -> usize {
        if self.connection.is_held() {
            let receiving = self.settlements.recv_many(batch, self.max_batch);
            match tokio::time::timeout(IDLE_TIMEOUT, receiving).await {
                Ok(received) => return received,
                Err(_) => self.connection.release(),
            }
        }
        self.settlements.recv_many(batch, self.max_batch).await
    }

    async fn settle(&mut self, batch: &mut [Settlement]) {
        match self.persist(batch).await {
            Ok(settled) => self.count(batch, settled),
            // A rejected settlement must not keep the others from being settled.
            Err(error) if batch.len() > 1 && !error.is_transient() => {
                for settlement in batch {
                    let alone = std::slice::from_mut(settlement);
                    match self.persist(alone).await {
                        Ok(settled) => self.count(alone, settled),
                        Err(error) => self.report_rejection(&alone[0], &error),
                    }
                }
            }
            Err(error) => batch
                .iter()
                .for_each(|settlement| self.report_rejection(settlement, &error)),
        }
    }

    /// Retries while the database is unavailable.
    async fn persist(&mut self, batch: &[Settlement]) -> crate::Result<Settled> {
        let mut wait = MIN_BACKOFF;
        loop {
            let settling = self
                .queue
                .settle_batch(&mut self.connection, &self.worker, batch);
            match catch_panic("settling", settling).await {
                Err(error) if error.is_transient() => {
                    tracing::warn!(%error, table = self.queue.table().name, items = batch.len(), "settling failed because the database is unavailable; retrying");
                    tokio::select! {
                        () = tokio::time::sleep(wait) => wait = (wait * 2).min(MAX_BACKOFF),
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
            settlement.after_commit.run();
        }
        if done > 0 {
            count_settled(self.queue.table(), &Outcome::Done, done);
        }
        if !settled.lost.is_empty() {
            // After a broken connection, this can also mean that the first try had committed.
            metrics::counter!("postrider_leases_lost_total", "table" => table)
                .increment(settled.lost.len() as u64);
            tracing::warn!(
                table,
                items = settled.lost.len(),
                "leases lost before settling; their results were discarded"
            );
        }
        if !settled.busy_keys.is_empty() {
            // The receiver lives as long as the worker; without it, the periodic sweep finds the keys.
            let _ = self.busy_keys.send(settled.busy_keys);
        }
        if batch
            .iter()
            .any(|settlement| settlement.lease.ordering_key.is_some())
        {
            self.backpressure.hint.notify_one();
        }
    }

    fn report_rejection(&self, settlement: &Settlement, error: &Error) {
        tracing::error!(
            %error,
            table = self.queue.table().name,
            item = settlement.lease.id(),
            "settling failed; the item is retried when its lease expires"
        );
    }
}

/// Counts settled items in the metrics.
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
        Outcome::Release => "given_back",
    }
}
