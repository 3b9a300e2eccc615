//! Puts the parts together, and takes them apart in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::backpressure::{Backpressure, Depth};
use super::batch_effect::BatchEffect;
use super::claimer::{Claimer, Help, Room, Routes};
use super::executor::{Executor, Job};
use super::fast_path::FastPath;
use super::heartbeat::Heartbeat;
use super::registry::Registry;
use super::rescuer::Rescuer;
use super::settler::Settler;
use super::{Handler, WorkerOptions, WorkerPool};
use crate::conn::StickyConn;
use crate::lease::{Kinds, Queue, WorkTable};
use crate::{Error, Result};

/// How long the last verdicts may wait for the database when the worker stops.
const LAST_SETTLE: Duration = Duration::from_secs(10);

/// A worker over one table. Build it, then [`Worker::run`] it.
#[derive(Debug)]
pub struct Worker {
    pool: PgPool,
    queue: Queue,
    options: WorkerOptions,
    handlers: HashMap<String, Handler>,
    other: Option<Handler>,
    ahead: Option<FastPath>,
    side: Option<WorkerPool>,
}

impl Worker {
    /// A worker over this table, without handlers yet.
    pub fn new(pool: PgPool, table: &'static WorkTable) -> Result<Self> {
        Ok(Self {
            pool,
            queue: Queue::new(table)?,
            options: WorkerOptions::default(),
            handlers: HashMap::new(),
            other: None,
            ahead: None,
            side: None,
        })
    }

    /// Other settings than the default ones.
    #[must_use]
    pub fn options(mut self, options: WorkerOptions) -> Self {
        self.options = options;
        self
    }

    /// Claims, renews and settles on these connections, which other workers use, too.
    #[must_use]
    pub fn with_pool(mut self, side: &WorkerPool) -> Self {
        self.side = Some(side.clone());
        self
    }

    /// Handles items of this kind.
    #[must_use]
    pub fn handle(mut self, kind: impl Into<String>, handler: Handler) -> Self {
        self.handlers.insert(kind.into(), handler);
        self
    }

    /// Handles every other kind, or all items of a table that knows no kinds.
    #[must_use]
    pub fn handle_others(mut self, handler: Handler) -> Self {
        self.other = Some(handler);
        self
    }

    /// The kinds that have a handler by name.
    pub(crate) fn kinds_of_its_own(&self) -> Vec<String> {
        self.handlers.keys().cloned().collect()
    }

    /// Called before each claim: finishes items that need no lease, because nothing is done for them but a change of their
    /// own rows, and says how many. Its statement must leave alone what is leased or finished. Claims wait for it.
    #[must_use]
    pub fn before_claim<F>(mut self, go: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<u64>> + Send + 'static,
    {
        self.ahead = Some(FastPath::new(go));
        self
    }

    /// Works until `stop`, then finishes or gives back what it holds. An error only if it can't work at all.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        self.options.validate()?;
        let kinds = self.kinds()?;
        // Whoever drops this future stops its parts: nothing must be claimed that nobody renews.
        let stop = stop.child_token();
        let _dropped = stop.clone().drop_guard();
        let listed = match &kinds {
            Kinds::Only(kinds) => Some(kinds.clone()),
            Kinds::Any | Kinds::Except(_) => None,
        };
        let (settle, settlements) = mpsc::unbounded_channel();
        let (together, joints) = mpsc::unbounded_channel();
        let (busy_keys, busy) = mpsc::unbounded_channel();
        let kill = CancellationToken::new();
        let give_up = CancellationToken::new();
        // Nor must a handler go on whose lease nobody renews or watches, or a settling that nobody ends.
        let _killed = kill.clone().drop_guard();
        let _given_up = give_up.clone().drop_guard();
        let executor = Arc::new(Executor {
            queue: self.queue.clone().patience(self.options.patience()),
            pool: self.pool.clone(),
            worker: short_id(),
            flow: Arc::new(Backpressure::default()),
            registry: Arc::new(Registry::new()),
            settle,
            together,
            busy_keys: busy_keys.clone(),
            patience: self.options.patience(),
            stop: stop.clone(),
            kill: kill.clone(),
        });
        let side = self.side.unwrap_or_else(|| WorkerPool::new(&self.pool));
        let mut hints = side.hints().about(self.queue.table());
        let side = side.pool().clone();
        let keeper = Arc::new(Heartbeat {
            queue: self.queue.clone(),
            side: side.clone(),
            registry: Arc::clone(&executor.registry),
            options: self.options.clone(),
            worker: executor.worker.clone(),
            kinds: listed.clone(),
        });
        // Aborted when this function ends, in whatever way.
        let _background = [
            background({
                let keeper = Arc::clone(&keeper);
                async move { keeper.renew().await }
            }),
            background({
                let keeper = Arc::clone(&keeper);
                async move { keeper.watch().await }
            }),
            background({
                let keeper = Arc::clone(&keeper);
                async move { keeper.heartbeat().await }
            }),
            background({
                let keeper = Arc::clone(&keeper);
                async move { keeper.promote(busy).await }
            }),
            background({
                let flow = Arc::clone(&executor.flow);
                async move {
                    while hints.changed().await.is_ok() {
                        flow.hint.notify_one();
                    }
                }
            }),
        ];
        let settler = tokio::spawn(
            Settler {
                queue: executor.queue.clone(),
                connection: StickyConn::new(side.clone()),
                worker: executor.worker.clone(),
                flow: Arc::clone(&executor.flow),
                registry: Arc::clone(&executor.registry),
                settlements,
                busy_keys,
                most: self.options.batch as usize,
                give_up: give_up.clone(),
            }
            .run(),
        );

        // Handlers wait for it; it ends with the last of them.
        tokio::spawn(
            BatchEffect {
                queue: executor.queue.clone(),
                pool: self.pool.clone(),
                worker: executor.worker.clone(),
                patience: self.options.patience(),
                busy_keys: executor.busy_keys.clone(),
                joints,
                most: self.options.batch as usize,
            }
            .run(),
        );

        let consumers = TaskTracker::new();
        let mut concurrency = 0;
        let mut route = |handler: &Handler| {
            concurrency += handler.concurrency * handler.most();
            spawn_consumers(&consumers, &executor, handler)
        };
        let routes = Routes {
            by_kind: self
                .handlers
                .iter()
                .map(|(kind, handler)| (kind.clone(), route(handler)))
                .collect(),
            other: self.other.as_ref().map(&mut route),
        };
        let rescuer = Rescuer {
            executor: Arc::clone(&executor),
            side: side.clone(),
            options: self.options.clone(),
            handlers: self.handlers,
            other: self.other,
            kinds: listed,
        };
        consumers.spawn(rescuer.run());
        consumers.close();
        let claimer = Claimer {
            executor: Arc::clone(&executor),
            side: side.clone(),
            room: std::sync::Mutex::new(Room {
                depth: Depth::new(
                    concurrency.min(self.options.prefetch),
                    self.options.prefetch,
                ),
                filled: None,
            }),
            most_held: 2 * self.options.prefetch + concurrency,
            options: self.options.clone(),
            kinds,
            routes,
            ahead: self.ahead,
            help: Help::default(),
        };
        drop(executor);

        // Ends with `stop`, or because there is nothing to claim from any more. Its routes go with it, and the
        // consumers end when they have seen the last job.
        let result = claimer.run().await;
        stop.cancel();
        if tokio::time::timeout(self.options.grace, consumers.wait())
            .await
            .is_err()
        {
            kill.cancel();
            consumers.wait().await;
        }
        // The consumers held the last ways to the settler.
        let mut settler = settler;
        if tokio::time::timeout(LAST_SETTLE, &mut settler)
            .await
            .is_err()
        {
            give_up.cancel();
            settler.await.map_err(|_| Error::Stopped("the settler"))?;
        }
        keeper.sign_off().await;
        result
    }

    fn kinds(&self) -> Result<Kinds> {
        match (&self.other, self.handlers.is_empty()) {
            (Some(_), _) => Ok(Kinds::Any),
            (None, false) => Ok(Kinds::Only(self.handlers.keys().cloned().collect())),
            (None, true) => Err(Error::invalid(
                "worker",
                "it has no handler; add one with handle or handle_others",
            )),
        }
    }
}

/// Starts as many consumers as the handler allows calls at once; returns the way to them.
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
    // At the stop all of them may be busy: one more gives back what waits.
    let (executor, handler) = (Arc::clone(executor), handler.clone());
    consumers.spawn(async move {
        executor.stop.cancelled().await;
        executor.consume(&handler, &jobs).await;
    });
    sender
}

fn background(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Eight characters: they are written to every leased row.
fn short_id() -> String {
    format!("{:08x}", rand::random::<u32>())
}
