//! Finds items whose worker was lost, and runs them one at a time.
//!
//! One at a time per process, because one of them may have killed the worker: an innocent item that ran next to it
//! becomes suspect once and never runs next to it again.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::PgPool;
use tokio::time::Instant;

use super::executor::{Executor, Job};
use super::worker_pool::jittered;
use super::{Handler, WorkerOptions};
use crate::Result;
use crate::failure::{Category, Failure};
use crate::internal::catch_panic;
use crate::lease::{Item, Lease, ScanCursor, Suspect};

/// Number of index entries read per scan.
const SCAN_WINDOW: u32 = 5_000;

pub(super) struct Rescuer {
    pub executor: Arc<Executor>,
    /// A separate pool, so handlers that exhaust theirs can't block a rescue.
    pub worker_pool: PgPool,
    pub options: WorkerOptions,
    pub handlers: HashMap<String, Handler>,
    pub fallback: Option<Handler>,
    /// None means every kind.
    pub kinds: Option<Vec<String>>,
}

impl Rescuer {
    /// Scans the head of the table, and one window further on, until stopped.
    pub async fn run(self) {
        let stop = self.executor.stop.clone();
        let mut resume_at = ScanCursor::START;
        while stop
            .run_until_cancelled(tokio::time::sleep(jittered(self.options.rescue_every)))
            .await
            .is_some()
        {
            match catch_panic("rescuing", self.rescue(resume_at)).await {
                Ok(next) => resume_at = next,
                Err(error) => tracing::debug!(%error, "rescue failed; retrying"),
            }
        }
    }

    async fn rescue(&self, resume_at: ScanCursor) -> Result<ScanCursor> {
        let next = self.scan(ScanCursor::START).await?;
        match (resume_at, next) {
            (_, None) => Ok(ScanCursor::START),
            (ScanCursor::START, Some(second)) => Ok(second),
            (resume_at, Some(_)) => Ok(self.scan(resume_at).await?.unwrap_or(ScanCursor::START)),
        }
    }

    /// Runs every suspect of one window; returns where the next window starts.
    async fn scan(&self, after: ScanCursor) -> Result<Option<ScanCursor>> {
        let (Executor { queue, worker, .. }, worker_pool) = (&*self.executor, &self.worker_pool);
        let found = queue
            .find_suspects(worker_pool, after, SCAN_WINDOW, self.kinds.as_deref())
            .await?;
        let mut ids = found.ids;
        while !ids.is_empty() && !self.executor.stop.is_cancelled() {
            let sent = Instant::now();
            let Some(suspect) = queue
                .claim_suspect(worker_pool, worker, self.options.lease, &ids)
                .await?
            else {
                break;
            };
            let id = match suspect {
                Suspect::Run(lease, item) => {
                    let id = lease.id();
                    self.run_alone(lease, item, sent).await;
                    id
                }
                Suspect::Exhausted(lease, item) => {
                    let id = lease.id();
                    self.mark_dead(lease, item, sent).await;
                    id
                }
            };
            ids.retain(|other| *other != id);
        }
        Ok(found.next)
    }

    async fn run_alone(&self, lease: Lease, item: Item, sent: Instant) {
        metrics::counter!("postrider_rescued_total", "table" => self.executor.queue.table().name)
            .increment(1);
        tracing::info!(
            table = self.executor.queue.table().name,
            item = item.id,
            losses = item.losses,
            "rescued an item of a lost worker"
        );
        if let Some(handler) = self.handler(&item.kind) {
            let job = self.job(lease, item, sent);
            self.executor.backpressure.started(1);
            self.executor.run(handler, vec![job]).await;
        }
    }

    async fn mark_dead(&self, lease: Lease, item: Item, sent: Instant) {
        let message = format!(
            "its worker was lost {} times; the item itself is the likely cause",
            item.losses
        );
        let failure = Failure::with_category("WORKER_LOST", Category::System, message);
        tracing::error!(table = self.executor.queue.table().name, item = item.id, %failure, "item marked dead; see its dead letter");
        if let Some(handler) = self.handler(&item.kind) {
            let job = self.job(lease, item, sent);
            self.executor.backpressure.started(1);
            self.executor.mark_dead(handler, job, failure).await;
        }
    }

    fn job(&self, lease: Lease, item: Item, sent: Instant) -> Job {
        let lost = self
            .executor
            .registry
            .add(std::iter::once(&lease), sent)
            .pop()
            .unwrap_or_default();
        let weight = item.weight();
        self.executor.backpressure.claimed(1, weight);
        Job {
            lease,
            item,
            lost,
            weight,
        }
    }

    fn handler(&self, kind: &str) -> Option<&Handler> {
        self.handlers.get(kind).or(self.fallback.as_ref())
    }
}
