//! Starts the parts of a worker, and stops them in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::PgPool;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::backpressure::{Backpressure, PrefetchDepth};
use super::batch_effect::{BatchEffect, PendingEffect};
use super::claimer::{Claimer, Prefetch, Routes, SecondClaimer};
use super::executor::{Executor, Job};
use super::fast_path::FastPath;
use super::heartbeat::Heartbeat;
use super::registry::Registry;
use super::rescuer::Rescuer;
use super::settler::Settler;
use super::{Handler, WorkerOptions, WorkerPool};
use crate::conn::StickyConn;
use crate::lease::{Kinds, Queue, Settlement, WorkTable};
use crate::{Error, Result};

/// How long the last verdicts may wait for the database when the worker stops.
const FINAL_SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs handlers over the items of one table.
///
/// ```no_run
/// use postrider::prelude::*;
///
/// # async fn example(pool: sqlx::PgPool) -> postrider::Result<()> {
/// let send = Handler::new(|item: Item| async move {
///     let address: String = item.read()?;
///     println!("to {address}");
///     Ok(Verdict::Done)
/// });
/// let worker = Worker::new(pool, &OUTBOX)?.handle("emails", send);
/// worker.run(CancellationToken::new()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Worker {
    pool: PgPool,
    queue: Queue,
    options: WorkerOptions,
    handlers: HashMap<String, Handler>,
    fallback: Option<Handler>,
    fast_path: Option<FastPath>,
    worker_pool: Option<WorkerPool>,
}

impl Worker {
    /// Creates a worker over this table, without handlers yet.
    pub fn new(pool: PgPool, table: &'static WorkTable) -> Result<Self> {
        Ok(Self {
            pool,
            queue: Queue::new(table)?,
            options: WorkerOptions::default(),
            handlers: HashMap::new(),
            fallback: None,
            fast_path: None,
            worker_pool: None,
        })
    }

    /// Replaces the default options.
    #[must_use]
    pub fn options(mut self, options: WorkerOptions) -> Self {
        self.options = options;
        self
    }

    /// Claims, renews and settles on a pool shared with other workers, instead of one of its own.
    #[must_use]
    pub fn with_pool(mut self, worker_pool: &WorkerPool) -> Self {
        self.worker_pool = Some(worker_pool.clone());
        self
    }

    /// Registers the handler of a kind.
    #[must_use]
    pub fn handle(mut self, kind: impl Into<String>, handler: Handler) -> Self {
        self.handlers.insert(kind.into(), handler);
        self
    }

    /// Registers the handler of every other kind, or of all items if the table has no kinds.
    #[must_use]
    pub fn handle_others(mut self, handler: Handler) -> Self {
        self.fallback = Some(handler);
        self
    }

    /// The kinds registered by name.
    pub(crate) fn registered_kinds(&self) -> Vec<String> {
        self.handlers.keys().cloned().collect()
    }

    /// Registers a fast path that runs before each claim. It finishes items that need no lease, because nothing but
    /// their own rows changes, and returns their number. Its statement must skip leased and finished items. Claims wait
    /// for it.
    #[must_use]
    pub fn before_claim<F>(mut self, run: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<u64>> + Send + 'static,
    {
        self.fast_path = Some(FastPath::new(run));
        self
    }

    /// Runs until `stop`, then finishes or releases what it holds. Fails only if it can't work at all.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        self.options.validate()?;
        let kinds = self.kinds()?;
        // If this future is dropped, its parts stop: nothing may be claimed that nobody renews.
        let stop = stop.child_token();
        let _stop_on_drop = stop.clone().drop_guard();
        let (claimer, running) = self.start(kinds, &stop);
        // Ends with `stop`, or because the pool is closed. It owns the routes, so the consumers end after the last job.
        let result = claimer.run().await;
        stop.cancel();
        running.shut_down().await?;
        result
    }

    fn start(self, kinds: Kinds, stop: &CancellationToken) -> (Claimer, Running) {
        let (settle, settlements) = mpsc::unbounded_channel();
        let (batch_effects, pending) = mpsc::unbounded_channel();
        let (busy_keys, busy) = mpsc::unbounded_channel();
        let (abort, stop_settling) = (CancellationToken::new(), CancellationToken::new());
        let executor = Arc::new(Executor {
            queue: self.queue.clone().call_timeout(self.options.call_timeout()),
            pool: self.pool.clone(),
            worker: short_id(),
            backpressure: Arc::new(Backpressure::default()),
            registry: Arc::new(Registry::new()),
            settle,
            batch_effects,
            busy_keys,
            call_timeout: self.options.call_timeout(),
            stop: stop.clone(),
            abort: abort.clone(),
        });
        let shared = self
            .worker_pool
            .clone()
            .unwrap_or_else(|| WorkerPool::new(&self.pool));
        let hints = shared.hints().subscribe(self.queue.table());
        let worker_pool = shared.pool().clone();
        let heartbeat = Arc::new(Heartbeat {
            queue: self.queue.clone(),
            worker_pool: worker_pool.clone(),
            registry: Arc::clone(&executor.registry),
            options: self.options.clone(),
            worker: executor.worker.clone(),
            kinds: listed(&kinds),
        });
        let background =
            spawn_background(&heartbeat, busy, hints, Arc::clone(&executor.backpressure));
        let settler = self.spawn_settler(&executor, &worker_pool, settlements, &stop_settling);
        self.spawn_batch_effect(&executor, pending);
        let consumers = TaskTracker::new();
        let grace = self.options.grace;
        let claimer = self.start_claimer(executor, worker_pool, kinds, &consumers);
        consumers.close();
        let running = Running {
            consumers,
            settler,
            heartbeat,
            grace,
            abort: abort.drop_guard(),
            stop_settling: stop_settling.drop_guard(),
            _background: background,
            _worker_pool: shared,
        };
        (claimer, running)
    }

    fn spawn_settler(
        &self,
        executor: &Executor,
        worker_pool: &PgPool,
        settlements: mpsc::UnboundedReceiver<Settlement>,
        give_up: &CancellationToken,
    ) -> JoinHandle<()> {
        let settler = Settler {
            queue: executor.queue.clone(),
            connection: StickyConn::new(worker_pool.clone()),
            worker: executor.worker.clone(),
            backpressure: Arc::clone(&executor.backpressure),
            registry: Arc::clone(&executor.registry),
            settlements,
            busy_keys: executor.busy_keys.clone(),
            max_batch: self.options.batch as usize,
            give_up: give_up.clone(),
        };
        tokio::spawn(settler.run())
    }

    /// Handlers wait for it; it ends with the last of them.
    fn spawn_batch_effect(
        &self,
        executor: &Executor,
        pending: mpsc::UnboundedReceiver<PendingEffect>,
    ) {
        let batch_effect = BatchEffect {
            queue: executor.queue.clone(),
            pool: self.pool.clone(),
            worker: executor.worker.clone(),
            call_timeout: self.options.call_timeout(),
            busy_keys: executor.busy_keys.clone(),
            pending,
            max_batch: self.options.batch as usize,
        };
        tokio::spawn(batch_effect.run());
    }

    /// Spawns the consumers and the rescuer, and returns the claimer that feeds them.
    fn start_claimer(
        self,
        executor: Arc<Executor>,
        worker_pool: PgPool,
        kinds: Kinds,
        consumers: &TaskTracker,
    ) -> Claimer {
        let mut concurrency = 0;
        let mut route = |handler: &Handler| {
            concurrency += handler.concurrency * handler.max_batch();
            spawn_consumers(consumers, &executor, handler)
        };
        let by_kind = self.handlers.iter();
        let routes = Routes {
            by_kind: by_kind
                .map(|(kind, handler)| (kind.clone(), route(handler)))
                .collect(),
            fallback: self.fallback.as_ref().map(&mut route),
        };
        let rescuer = Rescuer {
            executor: Arc::clone(&executor),
            worker_pool: worker_pool.clone(),
            options: self.options.clone(),
            handlers: self.handlers,
            fallback: self.fallback,
            kinds: listed(&kinds),
        };
        consumers.spawn(rescuer.run());
        let prefetch = self.options.prefetch;
        Claimer {
            executor,
            worker_pool,
            prefetch: std::sync::Mutex::new(Prefetch {
                depth: PrefetchDepth::new(concurrency.min(prefetch), prefetch),
                filled_at: None,
            }),
            max_held: 2 * prefetch + concurrency,
            options: self.options,
            kinds,
            routes,
            fast_path: self.fast_path,
            second_claimer: SecondClaimer::default(),
        }
    }

    fn kinds(&self) -> Result<Kinds> {
        match (&self.fallback, self.handlers.is_empty()) {
            (Some(_), _) => Ok(Kinds::Any),
            (None, false) => Ok(Kinds::Only(self.registered_kinds())),
            (None, true) => Err(Error::invalid(
                "worker",
                "it has no handler; add one with handle or handle_others",
            )),
        }
    }
}

/// Everything but the claimer. Dropping it aborts handlers, settling and background tasks: none may go on unwatched.
struct Running {
    consumers: TaskTracker,
    settler: JoinHandle<()>,
    heartbeat: Arc<Heartbeat>,
    grace: Duration,
    abort: DropGuard,
    stop_settling: DropGuard,
    _background: [AbortOnDropHandle<()>; 5],
    /// Listens for hints as long as it lives.
    _worker_pool: WorkerPool,
}

impl Running {
    /// Waits for the handlers, then for their verdicts, each for a limited time.
    async fn shut_down(mut self) -> Result<()> {
        let handled = tokio::time::timeout(self.grace, self.consumers.wait()).await;
        drop(self.abort);
        if handled.is_err() {
            self.consumers.wait().await;
        }
        // The consumers held the last senders to the settler.
        if tokio::time::timeout(FINAL_SETTLE_TIMEOUT, &mut self.settler)
            .await
            .is_err()
        {
            drop(self.stop_settling);
            let settled = self.settler.await;
            settled.map_err(|_| Error::Stopped("the settler"))?;
        }
        self.heartbeat.deregister().await;
        Ok(())
    }
}

/// The kinds to list in `postrider.worker`; None means every kind.
fn listed(kinds: &Kinds) -> Option<Vec<String>> {
    match kinds {
        Kinds::Only(kinds) => Some(kinds.clone()),
        Kinds::Any | Kinds::Except(_) => None,
    }
}

/// Spawns one task per concurrent call of the handler; returns the channel to them.
fn spawn_consumers(
    consumers: &TaskTracker,
    executor: &Arc<Executor>,
    handler: &Handler,
) -> mpsc::UnboundedSender<Job> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let jobs = Arc::new(Mutex::new(receiver));
    for _ in 0..handler.concurrency {
        let (executor, handler, jobs) = (Arc::clone(executor), handler.clone(), Arc::clone(&jobs));
        consumers.spawn(async move { executor.consume(&handler, &jobs).await });
    }
    // At the stop all of them may be busy: one more releases what waits.
    let (executor, handler) = (Arc::clone(executor), handler.clone());
    consumers.spawn(async move {
        executor.stop.cancelled().await;
        executor.consume(&handler, &jobs).await;
    });
    sender
}

/// Spawns what runs next to the handlers; aborted on drop.
fn spawn_background(
    heartbeat: &Arc<Heartbeat>,
    busy: mpsc::UnboundedReceiver<Vec<String>>,
    mut hints: watch::Receiver<()>,
    backpressure: Arc<Backpressure>,
) -> [AbortOnDropHandle<()>; 5] {
    let spawn = |task| AbortOnDropHandle::new(tokio::spawn(task));
    let [renewing, watching, beating, promoting] = [(); 4].map(|()| Arc::clone(heartbeat));
    [
        spawn(Box::pin(async move { renewing.renew().await }) as BoxFuture<'static, ()>),
        spawn(Box::pin(async move { watching.watch().await })),
        spawn(Box::pin(async move { beating.heartbeat().await })),
        spawn(Box::pin(async move { promoting.promote(busy).await })),
        spawn(Box::pin(async move {
            while hints.changed().await.is_ok() {
                backpressure.hint.notify_one();
            }
        })),
    ]
}

/// Eight characters: they are written to every leased row.
fn short_id() -> String {
    format!("{:08x}", rand::random::<u32>())
}
