//! Claims what is due whenever there is room, and otherwise waits for a hint or the next poll.
//!
//! While a claim is under way its server process works and everybody else waits for it. So where there is a backlog two
//! claims are under way at a time, each of its own half of the items: the *first* claimer looks at the table all the
//! time, the *second* comes to its help for as long as claims come back full.

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
use super::backpressure::{Asked, Depth};
use super::executor::{Executor, Job};
use super::fast_path::FastPath;
use super::worker_pool::spread;
use crate::catch_panic::catch_panic;
use crate::conn::{IDLE_TIMEOUT, StickyConn, with_timeout};
use crate::lease::{Claim, Item, Kinds, Lease, ScanCursor, Share};
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
    /// Connections of the worker's own, one for each claim under way.
    pub side: PgPool,
    pub options: WorkerOptions,
    pub kinds: Kinds,
    pub routes: Routes,
    pub ahead: Option<FastPath>,
    pub room: Mutex<Room>,
    /// Waiting, running and settling together.
    pub most_held: usize,
    pub help: Help,
}

/// How much is wanted.
pub(super) struct Room {
    pub depth: Depth,
    /// When the buffer was last filled to the brim.
    pub filled: Option<Instant>,
}

/// How the first claimer calls the second.
#[derive(Default)]
pub(super) struct Help {
    wanted: Notify,
    at_work: AtomicBool,
}

/// Where the next claim begins, and until when that is good enough.
struct Position {
    mark: ScanCursor,
    rescan_at: Instant,
}

impl Position {
    fn new() -> Self {
        Self {
            mark: ScanCursor::START,
            rescan_at: Instant::now(),
        }
    }

    /// Where to begin now.
    fn begin(&mut self) -> ScanCursor {
        if Instant::now() >= self.rescan_at {
            self.mark = ScanCursor::START;
        }
        self.mark
    }

    /// A claim that was sent then came back with these; were there as many as were asked for?
    fn claimed(&mut self, claimed: &[(Lease, Item)], full: bool, sent: Instant) {
        if self.mark == ScanCursor::START {
            self.rescan_at = Instant::now() + TRUST_MARK.max(sent.elapsed() * TRUST_FACTOR);
        }
        self.mark = match claimed.last() {
            Some((_, last)) if full => ScanCursor::at(last),
            _ => ScanCursor::START,
        };
    }
}

impl Claimer {
    /// Claims until told to stop; an error only if it makes no sense to go on.
    pub async fn run(self) -> Result<()> {
        let claimer = Arc::new(self);
        let stop = claimer.executor.stop.child_token();
        let second = tokio::spawn(Arc::clone(&claimer).second(stop.clone()));
        let ended = claimer.first(&stop).await;
        stop.cancel();
        // What its last claim brings still goes to the handlers' queues, and is given back from there.
        let _ = second.await;
        ended
    }

    async fn first(&self, stop: &CancellationToken) -> Result<()> {
        let mut connection = StickyConn::new(self.side.clone());
        let mut position = Position::new();
        let mut share = Share::ALL;
        let mut poll = self.options.poll_min;
        let mut trouble = FIRST_WAIT;
        loop {
            let room = self.room(&mut connection);
            let Some(asked) = stop.run_until_cancelled(room).await else {
                return Ok(());
            };
            if self.executor.pool.is_closed() {
                return Err(sqlx::Error::PoolClosed.into());
            }
            if let Some(ahead) = &self.ahead {
                let going = ahead.go(self.executor.queue.table());
                if stop.run_until_cancelled(going).await.is_none() {
                    return Ok(());
                }
            }
            let (sent, from) = (Instant::now(), position.begin());
            let claiming = self.claim(&mut connection, asked.items, from, share, stop);
            let claimed = match claiming.await {
                None => return Ok(()),
                Some(Ok(claimed)) => claimed,
                Some(Err(error)) => {
                    drop(asked);
                    self.report(&error);
                    // Should it be the half that can't be claimed, all of it may.
                    (position, share) = (Position::new(), Share::ALL);
                    let waiting = tokio::time::sleep(trouble);
                    if stop.run_until_cancelled(waiting).await.is_none() {
                        return Ok(());
                    }
                    trouble = (trouble * 2).min(LONGEST_WAIT);
                    continue;
                }
            };
            trouble = FIRST_WAIT;
            let full = claimed.len() >= asked.items;
            let found = !claimed.is_empty();
            let saw_all = !full && from == ScanCursor::START && share == Share::ALL;
            if self.is_whole_batch(&claimed, &asked) {
                self.help.wanted.notify_one();
            }
            position.claimed(&claimed, full, sent);
            self.dispatch(claimed, asked, sent);
            let half = full && self.help.at_work.load(Ordering::Relaxed);
            if !half && share != Share::ALL {
                // The mark speaks of one half only.
                position = Position::new();
            }
            share = if half { second::FIRST_HALF } else { Share::ALL };
            if found || !saw_all {
                poll = self.options.poll_min;
            }
            if !saw_all {
                // More may be there, or before the mark, or in the other half.
                continue;
            }
            if poll == self.options.poll_max || poll > IDLE_TIMEOUT {
                // Nothing came for a while.
                connection.release();
            }
            tokio::select! {
                () = self.executor.flow.hint.notified() => poll = self.options.poll_min,
                () = tokio::time::sleep(spread(poll)) => poll = (poll * 2).min(self.options.poll_max),
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    /// As much as one claim may bring: there is likely more.
    fn is_whole_batch(&self, claimed: &[(Lease, Item)], asked: &Asked<'_>) -> bool {
        let batch = self.options.batch as usize;
        asked.items >= batch && claimed.len() >= batch
    }

    /// None: the worker stops, and it took too long.
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
            let claimed = with_timeout(self.executor.patience, claimed).await;
            connection.finish(held, claimed)
        };
        // A claim that is under way at the stop is waited for: nobody else knows of its leases.
        let too_late = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_CLAIM).await;
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

    /// Waits until something should be claimed; says how much. After a moment the connection is given back: whoever settles may
    /// need it to make that room, and one that is long idle may be dead.
    async fn room(&self, connection: &mut StickyConn) -> Asked<'_> {
        if connection.is_held() {
            if let Ok(asked) = tokio::time::timeout(IDLE_TIMEOUT, self.asked()).await {
                return asked;
            }
            connection.release();
        }
        self.asked().await
    }

    async fn asked(&self) -> Asked<'_> {
        let flow = &self.executor.flow;
        loop {
            {
                let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
                let batch = self.options.batch as usize;
                let bytes = self.options.prefetch_bytes;
                let items = room.depth.wanted(flow, batch, bytes, self.most_held);
                if items > 0 {
                    if let Some(filled) = room.filled.take() {
                        room.depth.used_up_in(filled.elapsed());
                    }
                    return flow.asks(items);
                }
            }
            flow.room.notified().await;
        }
    }

    fn dispatch(&self, claimed: Vec<(Lease, Item)>, asked: Asked<'_>, sent: Instant) {
        let full = claimed.len() >= asked.items;
        let table = self.executor.queue.table().name;
        metrics::counter!("postrider_claimed_total", "table" => table)
            .increment(claimed.len() as u64);
        let lost = self
            .executor
            .registry
            .add(claimed.iter().map(|(lease, _)| lease), sent);
        let weights: Vec<usize> = claimed.iter().map(|(_, item)| item.weight()).collect();
        self.executor.flow.took(claimed.len(), weights.iter().sum());
        drop(asked);
        {
            let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
            if !weights.is_empty() {
                room.depth.saw(weights.iter().copied());
            }
            room.filled = full.then(Instant::now);
        }
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
