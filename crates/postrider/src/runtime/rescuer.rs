//! Finds items whose worker was lost and runs them, one at a time.
//!
//! One at a time per process, because one of them may be what killed the worker: an innocent one that ran beside it
//! becomes suspect once and never runs beside it again.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::PgPool;
use tokio::time::Instant;

use super::executor::{Executor, Job};
use super::worker_pool::spread;
use super::{Handler, WorkerOptions};
use crate::Result;
use crate::catch_panic::catch_panic;
use crate::failure::{Category, Failure};
use crate::lease::{Item, Lease, ScanCursor, Suspect};

/// Index entries read per look.
const WINDOW: u32 = 5_000;

pub(super) struct Rescuer {
    pub executor: Arc<Executor>,
    /// Handlers that have used up their pool can't keep it from looking.
    pub side: PgPool,
    pub options: WorkerOptions,
    pub handlers: HashMap<String, Handler>,
    pub other: Option<Handler>,
    /// None: every kind.
    pub kinds: Option<Vec<String>>,
}

impl Rescuer {
    /// Looks at the head of the table, and at one window further on, again and again until told to stop.
    pub async fn run(self) {
        let stop = self.executor.stop.clone();
        let mut further = ScanCursor::START;
        while stop
            .run_until_cancelled(tokio::time::sleep(spread(self.options.rescue_every)))
            .await
            .is_some()
        {
            match catch_panic("rescuing", self.rescue(further)).await {
                Ok(next) => further = next,
                Err(error) => tracing::debug!(%error, "rescue waits for the database"),
            }
        }
    }

    async fn rescue(&self, further: ScanCursor) -> Result<ScanCursor> {
        let next = self.look(ScanCursor::START).await?;
        match (further, next) {
            (_, None) => Ok(ScanCursor::START),
            (ScanCursor::START, Some(second)) => Ok(second),
            (further, Some(_)) => Ok(self.look(further).await?.unwrap_or(ScanCursor::START)),
        }
    }

    /// Runs every suspect of one window; says where the next begins.
    async fn look(&self, after: ScanCursor) -> Result<Option<ScanCursor>> {
        let (Executor { queue, worker, .. }, side) = (&*self.executor, &self.side);
        let found = queue
            .find_suspects(side, after, WINDOW, self.kinds.as_deref())
            .await?;
        let mut ids = found.ids;
        while !ids.is_empty() && !self.executor.stop.is_cancelled() {
            let sent = Instant::now();
            let Some(suspect) = queue
                .claim_suspect(side, worker, self.options.lease, &ids)
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
                Suspect::GiveUp(lease, item) => {
                    let id = lease.id();
                    self.give_up(lease, item, sent).await;
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
            "rescued"
        );
        if let Some(handler) = self.handler(&item.kind) {
            let job = self.job(lease, item, sent);
            self.executor.flow.started(1);
            self.executor.run(handler, vec![job]).await;
        }
    }

    async fn give_up(&self, lease: Lease, item: Item, sent: Instant) {
        let message = format!(
            "its worker was lost {} times; the item itself is the likely cause",
            item.losses
        );
        let failure = Failure::with_category("WORKER_LOST", Category::System, message);
        tracing::error!(table = self.executor.queue.table().name, item = item.id, %failure, "given up");
        if let Some(handler) = self.handler(&item.kind) {
            let job = self.job(lease, item, sent);
            self.executor.flow.started(1);
            self.executor.give_up(handler, job, failure).await;
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
        self.executor.flow.took(1, weight);
        Job {
            lease,
            item,
            lost,
            weight,
        }
    }

    fn handler(&self, kind: &str) -> Option<&Handler> {
        self.handlers.get(kind).or(self.other.as_ref())
    }
}
