//! Claims what is due whenever there is room, and otherwise waits for a hint or the next poll.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::WorkerOptions;
use super::ahead::Ahead;
use super::executor::{Executor, Job};
use super::flow::Depth;
use crate::guard::guarded;
use crate::lease::{Claim, Item, Kinds, Lease, Mark};
use crate::{Error, Result};

/// A mark is trusted at least this long, and at least twenty times as long as a look from the very beginning took.
const TRUST_MARK: Duration = Duration::from_millis(250);
const TRUST_FACTOR: u32 = 20;

/// How long a claim that is under way may still take when the worker stops.
const LAST_CLAIM: Duration = Duration::from_secs(5);

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Where jobs of each kind go.
pub(super) struct Routes {
    pub by_kind: HashMap<String, mpsc::UnboundedSender<Job>>,
    pub other: Option<mpsc::UnboundedSender<Job>>,
}

impl Routes {
    fn of(&self, kind: &str) -> Option<&mpsc::UnboundedSender<Job>> {
        self.by_kind.get(kind).or(self.other.as_ref())
    }
}

pub(super) struct Claimer {
    pub executor: Arc<Executor>,
    pub options: WorkerOptions,
    pub kinds: Kinds,
    pub routes: Routes,
    pub ahead: Option<Ahead>,
    pub depth: Depth,
    /// Waiting, running and settling together.
    pub most_held: usize,
    /// When the buffer was last filled to the brim.
    pub filled: Option<Instant>,
}

/// Where the next claim begins, and until when that is good enough.
struct Position {
    mark: Mark,
    rescan_at: Instant,
}

impl Claimer {
    /// Claims until told to stop; an error only if it makes no sense to go on.
    pub async fn run(mut self) -> Result<()> {
        let stop = self.executor.stop.clone();
        let mut position = Position {
            mark: Mark::START,
            rescan_at: Instant::now(),
        };
        let mut poll = self.options.poll_min;
        let mut trouble = FIRST_WAIT;
        loop {
            let Some(wanted) = stop.run_until_cancelled(self.room()).await else {
                return Ok(());
            };
            if let Some(ahead) = &self.ahead {
                let going = ahead.go(self.executor.queue.table());
                if stop.run_until_cancelled(going).await.is_none() {
                    return Ok(());
                }
            }
            if Instant::now() >= position.rescan_at {
                position.mark = Mark::START;
            }
            let from_start = position.mark == Mark::START;
            let sent = Instant::now();
            let claiming = guarded("claiming", self.claim(wanted, position.mark));
            // A claim that is under way at the stop is waited for: nobody else knows of its leases.
            let too_late = async {
                stop.cancelled().await;
                tokio::time::sleep(LAST_CLAIM).await;
            };
            let claimed = tokio::select! {
                claimed = claiming => claimed,
                () = too_late => return Ok(()),
            };
            let claimed = match claimed {
                Ok(claimed) => claimed,
                Err(Error::Database(error @ sqlx::Error::PoolClosed)) => return Err(error.into()),
                Err(error) => {
                    self.report(&error);
                    let waiting = tokio::time::sleep(trouble);
                    if stop.run_until_cancelled(waiting).await.is_none() {
                        return Ok(());
                    }
                    trouble = (trouble * 2).min(LONGEST_WAIT);
                    continue;
                }
            };
            trouble = FIRST_WAIT;
            metrics::histogram!("postrider_claim_seconds", "table" => self.executor.queue.table().name)
                .record(sent.elapsed());
            let full = claimed.len() >= wanted;
            if from_start {
                position.rescan_at = Instant::now() + TRUST_MARK.max(sent.elapsed() * TRUST_FACTOR);
            }
            position.mark = match claimed.last() {
                Some((_, last)) if full => Mark::at(last),
                _ => Mark::START,
            };
            let found = !claimed.is_empty();
            self.dispatch(claimed, sent);
            self.filled = full.then(Instant::now);
            if full || !from_start {
                // More may be there, or before the mark.
                poll = self.options.poll_min;
                continue;
            }
            if found {
                poll = self.options.poll_min;
            }
            tokio::select! {
                () = self.executor.flow.hint.notified() => poll = self.options.poll_min,
                () = tokio::time::sleep(poll) => poll = (poll * 2).min(self.options.poll_max),
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    async fn claim(&self, wanted: usize, from: Mark) -> Result<Vec<(Lease, Item)>> {
        let claim = Claim {
            owner: self.executor.worker.clone(),
            lease: self.options.lease,
            limit: u32::try_from(wanted).unwrap_or(u32::MAX),
            kinds: self.kinds.clone(),
            from,
        };
        self.executor.queue.claim(&self.executor.pool, &claim).await
    }

    /// Waits until something should be claimed; says how much.
    async fn room(&mut self) -> usize {
        loop {
            let flow = &self.executor.flow;
            let batch = self.options.batch as usize;
            let wanted =
                self.depth
                    .wanted(flow, batch, self.options.prefetch_bytes, self.most_held);
            if wanted > 0 {
                if let Some(filled) = self.filled.take() {
                    self.depth.used_up_in(filled.elapsed());
                }
                return wanted;
            }
            flow.room.notified().await;
        }
    }

    fn dispatch(&mut self, claimed: Vec<(Lease, Item)>, sent: Instant) {
        if claimed.is_empty() {
            return;
        }
        let table = self.executor.queue.table().name;
        metrics::counter!("postrider_claimed_total", "table" => table)
            .increment(claimed.len() as u64);
        let lost = self
            .executor
            .registry
            .add(claimed.iter().map(|(lease, _)| lease), sent);
        let weights: Vec<usize> = claimed.iter().map(|(_, item)| item.weight()).collect();
        self.depth.saw(weights.iter().copied());
        self.executor.flow.took(claimed.len(), weights.iter().sum());
        for (((lease, item), lost), weight) in claimed.into_iter().zip(lost).zip(weights) {
            let route = self.routes.of(&item.kind);
            let job = Job {
                lease,
                item,
                lost,
                weight,
            };
            // The claim asked for known kinds only, and consumers outlive the claimer. Should a job find no way all
            // the same, its lease runs out and it is found again.
            if let Some(route) = route {
                let _ = route.send(job);
            }
        }
    }

    fn report(&self, error: &Error) {
        let table = self.executor.queue.table().name;
        metrics::counter!("postrider_claim_errors_total", "table" => table).increment(1);
        if error.is_transient() {
            tracing::warn!(%error, table, "claiming waits for the database");
        } else {
            tracing::error!(%error, table, "claiming fails; trying again");
        }
    }
}
