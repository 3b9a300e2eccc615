//! Group commit: calls of many tasks share one round trip to the database.
//!
//! A [`Batcher`] collects what arrives while a call is under way and hands it to your function as one batch: one
//! statement, one transaction, one wait for the disk. Each caller gets its own answer, after the commit.
//!
//! What it promises:
//! - **Bounded.** A batch has [`call_timeout`](BatcherOptions::call_timeout) to get a connection and its answers. A
//!   connection whose answer wasn't read completely is closed, so a silent link delays one batch of one lane.
//! - **Isolated.** If the server rejects a batch, nothing of it was committed: its requests are repeated one by one, and
//!   a bad one fails alone. After any other failure the outcome is unknown, and every caller of the batch is told so.
//! - **Deadlock-free.** With several [`lanes`](BatcherOptions::lanes), [`Batcher::call_keyed`] always routes a key to the
//!   same lane, so two batches never lock the same keys in opposite order.
//! - **No orphans.** A caller that stopped waiting before its batch started is skipped. A panic in your function is an
//!   error for its batch; the lane lives on.
//!
//! ```no_run
//! use postrider::batcher::{Batcher, BatcherOptions};
//!
//! # async fn example(pool: sqlx::PgPool) -> postrider::Result<()> {
//! let options = BatcherOptions { lanes: 2, max_batch: 500, ..BatcherOptions::new("name intake") };
//! let names: Batcher<String, i64> = Batcher::with_connection(pool, options, |connection, names| {
//!     Box::pin(async move {
//!         // One answer per request, in their order.
//!         let insert = "insert into name (text) select * from unnest($1::text[]) returning id";
//!         Ok(sqlx::query_scalar(insert).bind(names).fetch_all(connection).await?)
//!     })
//! });
//! // From any number of tasks:
//! let id = names.call_keyed("Ada", "Ada".to_owned()).await?;
//! # Ok(())
//! # }
//! ```

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::TaskTracker;

use crate::conn::{CALL_TIMEOUT, IDLE_TIMEOUT, StickyConn, timed_out};
use crate::error::is_conflict;
use crate::internal::catch_panic;
use crate::{Error, lock_wait};

/// The failure of a batch, which is the answer to many callers.
pub trait BatchError: From<Error> + Send + 'static {
    /// The server rejected the batch: nothing was committed, and each request can be repeated alone.
    fn is_rejection(&self) -> bool;

    /// The same failure, for another caller.
    fn duplicate(&self) -> Self;
}

/// How calls are batched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatcherOptions {
    /// Name of the batcher in errors and logs, e.g. `"order intake"`.
    pub name: &'static str,
    /// Number of lanes, each with a task and at most one connection: while one commits, the others collect.
    pub lanes: usize,
    /// Maximum number of requests per batch.
    pub max_batch: usize,
    /// Number of requests that may wait per lane before further callers are held back.
    pub backlog: usize,
    /// Deadline of a batch, including the wait for a connection.
    pub call_timeout: Duration,
}

impl BatcherOptions {
    /// One lane, up to 1,000 requests per batch, 30 seconds per call.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            lanes: 1,
            max_batch: 1_000,
            backlog: 4_096,
            call_timeout: CALL_TIMEOUT,
        }
    }
}

type Call<Q, A, E> = (Q, oneshot::Sender<Result<A, E>>);

type WithConnection<Q, A, E> =
    dyn for<'c> Fn(&'c mut PgConnection, &'c [Q]) -> BoxFuture<'c, Result<Vec<A>, E>> + Send + Sync;

type WithoutConnection<Q, A, E> =
    dyn for<'c> Fn(&'c [Q]) -> BoxFuture<'c, Result<Vec<A>, E>> + Send + Sync;

/// Batches the calls of many tasks. Its lanes end when it is dropped and everything accepted is answered.
#[derive(Debug)]
pub struct Batcher<Q, A, E = Error> {
    lanes: Vec<mpsc::Sender<Call<Q, A, E>>>,
    tasks: TaskTracker,
    name: &'static str,
    hasher: RandomState,
    next: AtomicUsize,
}

impl<Q, A, E> Batcher<Q, A, E>
where
    Q: Send + Sync + 'static,
    A: Send + 'static,
    E: BatchError,
{
    /// Starts a batcher whose function needs no database connection. Call it inside a tokio runtime.
    pub fn new<F>(options: BatcherOptions, function: F) -> Self
    where
        F: for<'c> Fn(&'c [Q]) -> BoxFuture<'c, Result<Vec<A>, E>> + Send + Sync + 'static,
    {
        let function: Arc<WithoutConnection<Q, A, E>> = Arc::new(function);
        Self::start(options, || Function::Plain(Arc::clone(&function)))
    }

    /// Starts a batcher whose function gets a connection of the pool, which a lane keeps while calls follow each other.
    /// Call it inside a tokio runtime.
    pub fn with_connection<F>(pool: PgPool, options: BatcherOptions, function: F) -> Self
    where
        F: for<'c> Fn(&'c mut PgConnection, &'c [Q]) -> BoxFuture<'c, Result<Vec<A>, E>>
            + Send
            + Sync
            + 'static,
    {
        let function: Arc<WithConnection<Q, A, E>> = Arc::new(function);
        Self::start(options, || {
            Function::Connected(StickyConn::new(pool.clone()), Arc::clone(&function))
        })
    }

    fn start(options: BatcherOptions, function: impl Fn() -> Function<Q, A, E>) -> Self {
        let tasks = TaskTracker::new();
        let lanes = (0..options.lanes.max(1)).map(|_| {
            let (sender, calls) = mpsc::channel(options.backlog.max(1));
            let lane = Lane {
                function: function(),
                options,
            };
            tasks.spawn(lane.run(calls));
            sender
        });
        let lanes = lanes.collect();
        tasks.close();
        Self {
            lanes,
            tasks,
            name: options.name,
            hasher: RandomState::new(),
            next: AtomicUsize::new(0),
        }
    }

    /// Sends a request with the next batch of any lane and waits for its answer.
    pub async fn call(&self, request: Q) -> Result<A, E> {
        let lane = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(lane, request).await
    }

    /// Sends a request with the next batch of its key's lane and waits for its answer.
    pub async fn call_keyed(&self, key: impl Hash, request: Q) -> Result<A, E> {
        // Truncation is fine: any stable spread will do.
        self.send(self.hasher.hash_one(key) as usize, request).await
    }

    async fn send(&self, lane: usize, request: Q) -> Result<A, E> {
        let stopped = || E::from(Error::Stopped(self.name));
        let (reply, answer) = oneshot::channel();
        let lane = &self.lanes[lane % self.lanes.len()];
        lane.send((request, reply)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Accepts no more calls, and returns when everything accepted is answered.
    pub async fn stop(self) {
        drop(self.lanes);
        self.tasks.wait().await;
    }
}

enum Function<Q, A, E> {
    Plain(Arc<WithoutConnection<Q, A, E>>),
    Connected(StickyConn, Arc<WithConnection<Q, A, E>>),
}

impl<Q, A, E: BatchError> Function<Q, A, E> {
    async fn call(&mut self, requests: &[Q]) -> Result<Vec<A>, E> {
        let (sticky, function) = match self {
            Self::Plain(function) => return function(requests).await,
            Self::Connected(sticky, function) => (sticky, function),
        };
        // A timeout or a panic drops the connection on the way, which closes it.
        let mut connection = sticky.take().await.map_err(Error::from)?;
        let answers = function(&mut connection, requests).await;
        match &answers {
            Ok(_) => sticky.put(connection),
            Err(error) if error.is_rejection() => connection.release(),
            Err(_) => drop(connection),
        }
        answers
    }

    const fn holds_connection(&self) -> bool {
        matches!(self, Self::Connected(sticky, _) if sticky.is_held())
    }

    fn release_connection(&mut self) {
        if let Self::Connected(sticky, _) = self {
            sticky.release();
        }
    }
}

struct Lane<Q, A, E> {
    function: Function<Q, A, E>,
    options: BatcherOptions,
}

impl<Q, A, E: BatchError> Lane<Q, A, E> {
    async fn run(mut self, mut calls: mpsc::Receiver<Call<Q, A, E>>) {
        let mut batch = Vec::new();
        while self.collect(&mut calls, &mut batch).await {
            batch.retain(|(_, reply)| !reply.is_closed());
            if batch.is_empty() {
                continue;
            }
            let (requests, replies): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
            let answers = self.answer(&requests).await;
            for (reply, answer) in replies.into_iter().zip(answers) {
                // The caller may have stopped waiting meanwhile.
                let _ = reply.send(answer);
            }
        }
    }

    /// Waits for calls; idle lanes hold no connection. Returns false when there will be no more.
    async fn collect(
        &mut self,
        calls: &mut mpsc::Receiver<Call<Q, A, E>>,
        batch: &mut Vec<Call<Q, A, E>>,
    ) -> bool {
        let max = self.options.max_batch.max(1);
        let receiving = calls.recv_many(batch, max);
        let received = if self.function.holds_connection() {
            timeout(IDLE_TIMEOUT, receiving).await.ok()
        } else {
            Some(receiving.await)
        };
        let received = match received {
            Some(received) => received,
            None => {
                self.function.release_connection();
                calls.recv_many(batch, max).await
            }
        };
        // Tasks that are about to call go first: the larger a batch, the less each call costs.
        tokio::task::yield_now().await;
        while batch.len() < max
            && let Ok(call) = calls.try_recv()
        {
            batch.push(call);
        }
        received > 0
    }

    async fn answer(&mut self, requests: &[Q]) -> Vec<Result<A, E>> {
        let deadline = Instant::now() + self.options.call_timeout;
        match self.attempt(requests, deadline).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) if requests.len() > 1 && error.is_rejection() => {
                self.one_by_one(requests).await
            }
            Err(error) => share(error, requests.len()),
        }
    }

    /// Isolates the bad request of a rejected batch, within one more deadline for all of them.
    async fn one_by_one(&mut self, requests: &[Q]) -> Vec<Result<A, E>> {
        let deadline = Instant::now() + self.options.call_timeout;
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let alone = std::slice::from_ref(request);
            match self.attempt(alone, deadline).await {
                Ok(answer) => answers.extend(answer.into_iter().map(Ok)),
                Err(error) if error.is_rejection() => answers.push(Err(error)),
                // The connection is gone or the time is up: the others would fare no better.
                Err(error) => {
                    answers.extend(share(error, requests.len() - answers.len()));
                    break;
                }
            }
        }
        answers
    }

    async fn attempt(&mut self, requests: &[Q], deadline: Instant) -> Result<Vec<A>, E> {
        let call = catch_panic(self.options.name, self.function.call(requests));
        match timeout_at(deadline, call).await {
            Ok(answers) => answers,
            Err(_) => Err(Error::from(timed_out(self.options.call_timeout)).into()),
        }
    }
}

fn share<A, E: BatchError>(error: E, count: usize) -> Vec<Result<A, E>> {
    let mut answers = Vec::with_capacity(count);
    answers.extend((1..count).map(|_| Err(error.duplicate())));
    answers.push(Err(error));
    answers
}

impl BatchError for Error {
    fn is_rejection(&self) -> bool {
        let Self::Database(error @ sqlx::Error::Database(_)) = self else {
            return false;
        };
        !self.is_transient() || is_conflict(error) || lock_wait::ran_out(error)
    }

    fn duplicate(&self) -> Self {
        match self {
            Self::Panicked(what) => Self::Panicked(what),
            Self::Stopped(what) => Self::Stopped(what),
            Self::Unreadable { what, problem } => Self::Unreadable {
                what,
                problem: problem.clone(),
            },
            other => Self::Database(sqlx::Error::Io(std::io::Error::other(other.to_string()))),
        }
    }
}

impl BatchError for crate::ledger::LedgerError {
    fn is_rejection(&self) -> bool {
        match self {
            Self::Busy { .. } => true,
            Self::Other(error) => error.is_rejection(),
            Self::Unknown(_) | Self::WrongState { .. } => false,
        }
    }

    fn duplicate(&self) -> Self {
        match self {
            Self::Busy { retry_after } => Self::Busy {
                retry_after: *retry_after,
            },
            Self::Unknown(key) => Self::Unknown(key.clone()),
            Self::WrongState { key, state } => Self::WrongState {
                key: key.clone(),
                state: *state,
            },
            Self::Other(error) => Self::Other(error.duplicate()),
        }
    }
}
