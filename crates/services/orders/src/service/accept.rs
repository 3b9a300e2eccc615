//! Acceptance: ledger entry and outbox row in one transaction, and many orders in one commit.
//!
//! Without an ordering that is one statement, hence one round trip and one wait for the disk. Repetitions write nothing and
//! wait for no disk; what is known of them is read once for the whole batch. Where repetitions come, more are likely: a
//! writer whose last batch was mostly repetitions reads first, and tries to accept only what is not known yet.
//!
//! Posts that arrive while a commit is on its way to the disk share the next one; each caller is answered only when its
//! own commit is durable. A key always goes to the same writer, so that two writers never wait for each other, and
//! repetitions within one batch are answered as if they had come one after the other. One bad order fails alone.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use postrider::{
    Error,
    digest::Digest,
    ledger::{Acceptance, Key, Ledger, LedgerError},
    wake::Waker,
};
use sqlx::{Connection, PgConnection, PgPool, Postgres, pool::PoolConnection};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use crate::{
    OUTBOX_ORDERS, gauges,
    model::{Order, OrderView},
    settings::Ordering,
    store,
};

/// While one writer commits, the other collects.
const WRITERS: usize = 2;

/// At most so many orders share a commit.
const MAX_BATCH: usize = 500;

/// So many posts may wait per writer before further ones wait outside.
const BACKLOG: usize = 4_096;

/// A writer that has nothing to do for this long gives its connection back.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// So long a post waits for another process that is just accepting the same key.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection that has not answered by then never will: a link can go silent without breaking.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// What became of a post.
#[derive(Debug, Clone, PartialEq)]
pub enum AcceptOutcome {
    /// The first of its key.
    Accepted(OrderView),
    /// The same was posted before; this is what is known of it.
    Replay(OrderView),
    /// Something else was posted before under the same key.
    Mismatch,
}

struct Post {
    order: Order,
    reply: oneshot::Sender<Result<AcceptOutcome, LedgerError>>,
}

/// Accepts orders, many at a time.
#[derive(Debug)]
pub(crate) struct Acceptor {
    writers: Vec<mpsc::Sender<Post>>,
    hasher: RandomState,
}

impl Acceptor {
    /// Starts the writers, which end with the acceptor. Call it inside a tokio runtime.
    pub fn start(pool: &PgPool, waker: &Waker, ordering: Ordering) -> Self {
        let writers = (0..WRITERS).map(|_| {
            let (sender, posts) = mpsc::channel(BACKLOG);
            let writer = Writer {
                pool: pool.clone(),
                waker: waker.clone(),
                ordering,
                expects_repetitions: false,
                connection: None,
            };
            tokio::spawn(writer.run(posts));
            sender
        });
        Self {
            writers: writers.collect(),
            hasher: RandomState::new(),
        }
    }

    /// Accepts an order; returns when that is durable.
    pub async fn accept(&self, order: Order) -> Result<AcceptOutcome, LedgerError> {
        let stopped = || LedgerError::Engine(Error::Stopped("the acceptance of orders"));
        // Truncation is fine: any stable spread will do.
        let lane = self.hasher.hash_one(order.key.key()) as usize % self.writers.len();
        let (reply, answer) = oneshot::channel();
        self.writers[lane]
            .send(Post { order, reply })
            .await
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

struct Writer {
    pool: PgPool,
    waker: Waker,
    ordering: Ordering,
    expects_repetitions: bool,
    /// Kept from batch to batch: taking one from the pool and giving it back are two round trips more.
    connection: Option<PoolConnection<Postgres>>,
}

impl Writer {
    async fn run(mut self, mut posts: mpsc::Receiver<Post>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        while let Some(first) = self.next(&mut posts).await {
            batch.push(first);
            // Whoever is about to post does so first: the more there are, the less each one costs.
            tokio::task::yield_now().await;
            while batch.len() < MAX_BATCH
                && let Ok(post) = posts.try_recv()
            {
                batch.push(post);
            }
            // Nobody waits for an answer any more: the client will repeat, with the same key.
            batch.retain(|post: &Post| !post.reply.is_closed());
            let orders: Vec<&Order> = batch.iter().map(|post| &post.order).collect();
            let answers = match self.catch_panic(&orders).await {
                Ok(answers) => answers.into_iter().map(Ok).collect(),
                Err(error) if orders.len() > 1 && was_refused(&error) => {
                    self.one_by_one(&orders).await
                }
                Err(error) => unanswered(orders.len(), error),
            };
            for (post, answer) in batch.drain(..).zip(answers) {
                let _ = post.reply.send(answer);
            }
        }
    }

    /// Waits for a post, and for no longer than that with a connection in hand.
    async fn next(&mut self, posts: &mut mpsc::Receiver<Post>) -> Option<Post> {
        if self.connection.is_some() {
            if let Ok(post) = timeout(IDLE_TIMEOUT, posts.recv()).await {
                return post;
            }
            self.connection = None;
        }
        posts.recv().await
    }

    /// A panic costs the batch that it hit; a writer that vanished would refuse its keys for ever.
    async fn catch_panic(&mut self, orders: &[&Order]) -> Result<Vec<AcceptOutcome>, LedgerError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.pool.acquire().await?,
        };
        let accepting = AssertUnwindSafe(self.accept(&mut connection, orders)).catch_unwind();
        let accepted = match timeout(CALL_TIMEOUT, accepting).await {
            Ok(Ok(accepted)) => accepted,
            Ok(Err(_)) => {
                tracing::error!("the acceptance of orders panicked; going on");
                Err(Error::Panicked("the acceptance of orders").into())
            }
            Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()).into()),
        };
        if accepted.is_ok() {
            self.connection = Some(connection);
        } else {
            // In what state it is, nobody knows.
            connection.close_on_drop();
        }
        accepted
    }

    async fn accept(
        &mut self,
        connection: &mut PgConnection,
        orders: &[&Order],
    ) -> Result<Vec<AcceptOutcome>, LedgerError> {
        // Of several posts of one key the first leads; the others are answered as if they had come after it.
        let mut leaders: HashMap<&str, &Order> = HashMap::with_capacity(orders.len());
        for order in orders {
            leaders.entry(order.key.key()).or_insert(order);
        }
        let wanted: Vec<&Order> = in_order_of_arrival(orders, &leaders);
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let mut known = HashMap::new();
        if self.expects_repetitions {
            known = known_of(connection, wanted.iter().map(|order| order.key.key())).await?;
        }
        let unknown: Vec<&Order> = wanted
            .iter()
            .copied()
            .filter(|order| !known.contains_key(order.key.key()))
            .collect();
        postrider_crashpoint::point!("orders.before_accept").map_err(Error::from)?;
        let mut new = self.take(connection, &unknown).await?;
        postrider_crashpoint::point!("orders.after_accept").map_err(Error::from)?;
        if !new.is_empty() {
            gauges::enqueued(new.len() as u64);
            self.waker.wake(&OUTBOX_ORDERS);
        }
        self.expects_repetitions = new.len() * 2 < wanted.len();
        let taken = unknown
            .iter()
            .map(|order| order.key.key())
            .filter(|key| !new.contains(*key));
        known.extend(known_of(connection, taken).await?);
        let accepted: HashSet<String> = new.clone();
        orders
            .iter()
            .map(|order| {
                let key = order.key.key();
                if new.remove(key) {
                    return Ok(AcceptOutcome::Accepted(OrderView::fresh(order)));
                }
                let view = match (known.get(key), leaders.get(key)) {
                    (Some(view), _) => view.clone(),
                    // A repetition within the batch that accepted it.
                    (None, Some(leader)) if accepted.contains(key) => OrderView::fresh(leader),
                    (None, _) => return Err(LedgerError::Unknown(order.key.clone())),
                };
                Ok(if view.request_digest == order.digest.to_string() {
                    AcceptOutcome::Replay(view)
                } else {
                    AcceptOutcome::Mismatch
                })
            })
            .collect()
    }

    /// Takes the keys that are free, each with its row; says which.
    async fn take(
        &self,
        connection: &mut PgConnection,
        orders: &[&Order],
    ) -> Result<HashSet<String>, LedgerError> {
        if orders.is_empty() {
            return Ok(HashSet::new());
        }
        if self.ordering == Ordering::None {
            return Ok(store::accept(connection, orders, LOCK_TIMEOUT).await?);
        }
        let requests: Vec<(Key, Digest)> = orders
            .iter()
            .map(|order| (order.key.clone(), order.digest))
            .collect();
        let mut tx = connection.begin().await?;
        let told = Ledger::new(LOCK_TIMEOUT)
            .accept_many(&mut tx, &requests)
            .await?;
        let new: Vec<&Order> = orders
            .iter()
            .zip(&told)
            .filter(|(_, told)| **told == Acceptance::Accepted)
            .map(|(order, _)| *order)
            .collect();
        store::insert_ordered(&mut tx, &new, self.ordering).await?;
        tx.commit().await?;
        Ok(new.iter().map(|order| order.key.key().to_owned()).collect())
    }

    async fn one_by_one(&mut self, orders: &[&Order]) -> Vec<Result<AcceptOutcome, LedgerError>> {
        let mut answers = Vec::with_capacity(orders.len());
        for order in orders {
            let answer = self.catch_panic(std::slice::from_ref(order)).await;
            answers.push(answer.and_then(|mut answers| {
                answers.pop().ok_or(LedgerError::Engine(Error::Stopped(
                    "the acceptance of orders",
                )))
            }));
        }
        answers
    }
}

async fn known_of(
    connection: &mut PgConnection,
    keys: impl Iterator<Item = &str>,
) -> Result<HashMap<String, OrderView>, LedgerError> {
    let keys: Vec<&str> = keys.collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let views = store::views(connection, &keys).await?;
    Ok(views
        .into_iter()
        .map(|view| (view.idempotency_key.clone(), view))
        .collect())
}

/// The leaders, in the order in which they came.
fn in_order_of_arrival<'a>(
    orders: &[&'a Order],
    leaders: &HashMap<&str, &'a Order>,
) -> Vec<&'a Order> {
    orders
        .iter()
        .copied()
        .filter(|order| {
            leaders
                .get(order.key.key())
                .is_some_and(|leader| std::ptr::eq(*leader, *order))
        })
        .collect()
}

/// The server itself said no, so that nothing was committed; after anything else nobody knows.
fn was_refused(error: &LedgerError) -> bool {
    match error {
        LedgerError::Busy { .. } => true,
        LedgerError::Engine(error) => error.is_refusal(),
        LedgerError::Unknown(_) | LedgerError::NotNow { .. } => false,
    }
}

/// The connection broke: everybody is told so, and may repeat with the same key.
fn unanswered(count: usize, error: LedgerError) -> Vec<Result<AcceptOutcome, LedgerError>> {
    let text = error.to_string();
    let others = std::iter::repeat_with(|| {
        let error = sqlx::Error::Io(std::io::Error::other(text.clone()));
        LedgerError::Engine(Error::Database(error))
    });
    std::iter::once(error)
        .chain(others)
        .take(count)
        .map(Err)
        .collect()
}
