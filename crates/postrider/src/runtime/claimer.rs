//! Claims what is due whenever there is room, and otherwise waits for a hint or the next poll.
//!
//! The server works on a claim in one process while everybody else waits. So with a backlog, two claims run at a time,
//! each on its own half of the items: the *first* claimer always polls the table, the *second* joins for as long as
//! claims come back full.

mod second;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::WorkerOptions;
use super::backpressure::{PendingClaim, PrefetchDepth};
use super::executor::{Executor, Job};
use super::fast_path::FastPath;
use super::worker_pool::jittered;
use crate::conn::{IDLE_TIMEOUT, StickyConn, with_timeout};
use crate::internal::catch_panic;
use crate::lease::{Claim, Item, Kinds, Lease, ScanCursor, Share};
use crate::{Error, Result};

/// A cursor stays valid at least this long, and at least twenty times as long as a scan from the start took.
const CURSOR_TTL: Duration = Duration::from_millis(250);
const CURSOR_TTL_FACTOR: u32 = 20;

/// How long a claim under way may still take when the worker stops.
const LAST_CLAIM_TIMEOUT: Duration = Duration::from_secs(5);

const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// The channels to the handlers, by kind.
pub(super) struct Routes {
    pub by_kind: HashMap<String, mpsc::UnboundedSender<Job>>,
    pub fallback: Option<mpsc::UnboundedSender<Job>>,
}

impl Routes {
    fn route(&self, kind: &str) -> Option<&mpsc::UnboundedSender<Job>> {
        self.by_kind.get(kind).or(self.fallback.as_ref())
    }
}

pub(super) struct Claimer {
    pub executor: Arc<Executor>,
    /// The worker's own connections, one per claim under way.
    pub worker_pool: PgPool,
    pub options: WorkerOptions,
    pub kinds: Kinds,
    pub routes: Routes,
    pub fast_path: Option<FastPath>,
    pub prefetch: Mutex<Prefetch>,
    /// Maximum number of items waiting, running and settling.
    pub max_held: usize,
    pub second_claimer: SecondClaimer,
}

/// State of the prefetch buffer.
pub(super) struct Prefetch {
    pub depth: PrefetchDepth,
    /// When the buffer was last filled completely.
    pub filled_at: Option<Instant>,
}

/// How the first claimer signals the second.
#[derive(Default)]
pub(super) struct SecondClaimer {
    wanted: Notify,
    active: AtomicBool,
}

/// Where the next claim starts, and until when that may be trusted.
struct Position {
    cursor: ScanCursor,
    rescan_at: Instant,
}

impl Position {
    fn new() -> Self {
        Self {
            cursor: ScanCursor::START,
            rescan_at: Instant::now(),
        }
    }

    /// The cursor for the next claim.
    fn begin(&mut self) -> ScanCursor {
        if Instant::now() >= self.rescan_at {
            self.cursor = ScanCursor::START;
        }
        self.cursor
    }

    /// Advances after a claim sent at `sent`; `full` if it returned as many items as requested.
    fn claimed(&mut self, claimed: &[(Lease, Item)], full: bool, sent: Instant) {
        if self.cursor == ScanCursor::START {
            self.rescan_at = Instant::now() + CURSOR_TTL.max(sent.elapsed() * CURSOR_TTL_FACTOR);
        }
        self.cursor = match claimed.last() {
            Some((_, last)) if full => ScanCursor::at(last),
            _ => ScanCursor::START,
        };
    }
}

impl Claimer {
    /// Claims until stopped; fails only if going on makes no sense.
    pub async fn run(self) -> Result<()> {
        let claimer = Arc::new(self);
        let stop = claimer.executor.stop.child_token();
        let second = tokio::spawn(Arc::clone(&claimer).second(stop.clone()));
        let ended = claimer.first(&stop).await;
        stop.cancel();
        // What its last claim returned still goes to the handlers' queues and is released from there.
        let _ = second.await;
        ended
    }

    async fn first(&self, stop: &CancellationToken) -> Result<()> {
        let mut connection = StickyConn::new(self.worker_pool.clone());
        let mut position = Position::new();
        let mut share = Share::ALL;
        let mut poll = self.options.poll_min;
        let mut backoff = MIN_BACKOFF;
        loop {
            let room = self.wait_for_room(&mut connection);
            let Some(pending) = stop.run_until_cancelled(room).await else {
                return Ok(());
            };
            if self.executor.pool.is_closed() {
                return Err(sqlx::Error::PoolClosed.into());
            }
            if let Some(fast_path) = &self.fast_path {
                let running = fast_path.run(self.executor.queue.table());
                if stop.run_until_cancelled(running).await.is_none() {
                    return Ok(());
                }
            }
            let (sent, from) = (Instant::now(), position.begin());
            let claiming = self.claim(&mut connection, pending.items, from, share, stop);
            let claimed = match claiming.await {
                None => return Ok(()),
                Some(Ok(claimed)) => claimed,
                Some(Err(error)) => {
                    drop(pending);
                    self.report(&error);
                    // If claiming by halves fails, claiming everything may not.
                    (position, share) = (Position::new(), Share::ALL);
                    let waiting = tokio::time::sleep(backoff);
                    if stop.run_until_cancelled(waiting).await.is_none() {
                        return Ok(());
                    }
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                    continue;
                }
            };
            backoff = MIN_BACKOFF;
            let full = claimed.len() >= pending.items;
            let found = !claimed.is_empty();
            let saw_all = !full && from == ScanCursor::START && share == Share::ALL;
            if self.is_full_batch(&claimed, &pending) {
                self.second_claimer.wanted.notify_one();
            }
            position.claimed(&claimed, full, sent);
            self.dispatch(claimed, pending, sent);
            let half = full && self.second_claimer.active.load(Ordering::Relaxed);
            if !half && share != Share::ALL {
                // The cursor is valid for one half only.
                position = Position::new();
            }
            share = if half { second::FIRST_HALF } else { Share::ALL };
            if found || !saw_all {
                poll = self.options.poll_min;
            }
            if !saw_all {
                // There may be more: after the cursor, before it, or in the other half.
                continue;
            }
            if poll == self.options.poll_max || poll > IDLE_TIMEOUT {
                connection.release();
            }
            tokio::select! {
                () = self.executor.backpressure.hint.notified() => poll = self.options.poll_min,
                () = tokio::time::sleep(jittered(poll)) => poll = (poll * 2).min(self.options.poll_max),
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// A claim of the maximum size came back full: there is likely more.
    fn is_full_batch(&self, claimed: &[(Lease, Item)], pending: &PendingClaim<'_>) -> bool {
        let batch = self.options.batch as usize;
        pending.items >= batch && claimed.len() >= batch
    }

    /// Returns None if the worker is stopping and the claim took too long.
    async fn claim(
        &self,
        connection: &mut StickyConn,
        items: usize,
        from: ScanCursor,
        share: Share,
        stop: &CancellationToken,
    ) -> Option<Result<Vec<(Lease, Item)>>> {
        let claim = Claim {
            owner: self.executor.worker.clone(),
            lease: self.options.lease,
            limit: u32::try_from(items).unwrap_or(u32::MAX),
            kinds: self.kinds.clone(),
            from,
        };
        let sent = Instant::now();
        let queue = &self.executor.queue;
        let claiming = async {
            let mut held = connection.take().await?;
            let claimed = queue.claim_on(&mut held, &claim, share);
            let claimed = with_timeout(self.executor.call_timeout, claimed).await;
            connection.finish(held, claimed)
        };
        // At a stop, a claim under way is awaited: nobody else knows of its leases.
        let too_late = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_CLAIM_TIMEOUT).await;
        };
        let claimed = tokio::select! {
            claimed = catch_panic("claiming", claiming) => claimed,
            () = too_late => return None,
        };
        if claimed.is_ok() {
            metrics::histogram!("postrider_claim_seconds", "table" => queue.table().name)
                .record(sent.elapsed());
        }
        Some(claimed)
    }

    /// Waits until there is room for items. Releases the connection after a moment: the settler may need it to make
    /// room, and a connection idle for long may be dead.
    async fn wait_for_room(&self, connection: &mut StickyConn) -> PendingClaim<'_> {
        if connection.is_held() {
            if let Ok(pending) = tokio::time::timeout(IDLE_TIMEOUT, self.next_claim()).await {
                return pending;
            }
            connection.release();
        }
        self.next_claim().await
    }

    async fn next_claim(&self) -> PendingClaim<'_> {
        let backpressure = &self.executor.backpressure;
        loop {
            {
                let mut prefetch = self.prefetch.lock().unwrap_or_else(PoisonError::into_inner);
                let batch = self.options.batch as usize;
                let bytes = self.options.prefetch_bytes;
                let items = prefetch
                    .depth
                    .claim_size(backpressure, batch, bytes, self.max_held);
                if items > 0 {
                    if let Some(filled_at) = prefetch.filled_at.take() {
                        prefetch.depth.drained_in(filled_at.elapsed());
                    }
                    return backpressure.begin_claim(items);
                }
            }
            backpressure.room.notified().await;
        }
    }

    fn dispatch(&self, claimed: Vec<(Lease, Item)>, pending: PendingClaim<'_>, sent: Instant) {
        let full = claimed.len() >= pending.items;
        let table = self.executor.queue.table().name;
        metrics::counter!("postrider_claimed_total", "table" => table)
            .increment(claimed.len() as u64);
        let lost = self
            .executor
            .registry
            .add(claimed.iter().map(|(lease, _)| lease), sent);
        let weights: Vec<usize> = claimed.iter().map(|(_, item)| item.weight()).collect();
        self.executor
            .backpressure
            .claimed(claimed.len(), weights.iter().sum());
        drop(pending);
        {
            let mut prefetch = self.prefetch.lock().unwrap_or_else(PoisonError::into_inner);
            if !weights.is_empty() {
                prefetch.depth.observe(weights.iter().copied());
            }
            prefetch.filled_at = full.then(Instant::now);
        }
        for (((lease, item), lost), weight) in claimed.into_iter().zip(lost).zip(weights) {
            let route = self.routes.route(&item.kind);
            let job = Job {
                lease,
                item,
                lost,
                weight,
            };
            // The claim asked for registered kinds only, and consumers outlive the claimer. If a job still finds no
            // route, its lease expires and it is rescued.
            if let Some(route) = route {
                let _ = route.send(job);
            }
        }
    }

    fn report(&self, error: &Error) {
        let table = self.executor.queue.table().name;
        metrics::counter!("postrider_claim_errors_total", "table" => table).increment(1);
        if error.is_transient() {
            tracing::warn!(%error, table, "claim failed because the database is unavailable; retrying");
        } else {
            tracing::error!(%error, table, "claim failed; retrying");
        }
    }
}
