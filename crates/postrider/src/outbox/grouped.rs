//! Grouped commits: single enqueues of many callers share a transaction, and each caller still waits for its durable commit.
//!
//! Two writers, each with a connection of its own at a time: while one commits, the other collects. Messages with keys
//! have two writers of their own, because a key may be locked by somebody's open transaction, and such a message must
//! not hold up others; a key always goes to the same writer, so that two writers never hold the same keys in opposite
//! order. A batch that the database refuses is repeated message by message: a bad one fails alone.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::{Connection, PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::enqueue::{enqueue_keyed, lock_order};
use super::{Message, OUTBOX, Receipt, bulk};
use crate::catch_panic::catch_panic;
use crate::conn::{CALL_TIMEOUT, ConnGuard, answer};
use crate::wake::Waker;
use crate::{Error, Result};

/// How enqueues are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnqueuerOptions {
    /// How many writers; as many again for messages with keys.
    pub writers: usize,
    /// At most so many messages share a commit.
    pub batch: usize,
    /// So many callers may wait per writer before further ones wait outside.
    pub backlog: usize,
}

impl Default for EnqueuerOptions {
    fn default() -> Self {
        Self {
            writers: 2,
            batch: 1_000,
            backlog: 10_000,
        }
    }
}

/// A key that somebody's open transaction holds is an error for its own message, after this long.
const BOUND_LOCK_WAIT: &str = "set local lock_timeout = '2s'";

struct Request {
    message: Message,
    reply: oneshot::Sender<Result<Receipt>>,
}

/// Accepts single messages outside any transaction, many at a time. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Enqueuer {
    writers: Vec<mpsc::Sender<Request>>,
    tasks: TaskTracker,
    hasher: RandomState,
    next: AtomicUsize,
}

impl Enqueuer {
    /// Starts the writers. Call it inside a tokio runtime.
    #[must_use]
    pub fn start(pool: &PgPool, waker: Option<&Waker>, options: EnqueuerOptions) -> Self {
        let tasks = TaskTracker::new();
        let writers = (0..2 * options.writers.max(1))
            .map(|_| {
                let (sender, receiver) = mpsc::channel(options.backlog.max(1));
                tasks.spawn(write(
                    pool.clone(),
                    waker.cloned(),
                    receiver,
                    options.batch.max(1),
                ));
                sender
            })
            .collect();
        tasks.close();
        Self {
            writers,
            tasks,
            hasher: RandomState::new(),
            next: AtomicUsize::new(0),
        }
    }

    /// Enqueues a message; returns when it is durably committed.
    ///
    /// On a transient error (see [`Error::is_transient`]) the outcome can be unknown, as with any commit: repeat with
    /// a dedupe key to be sure that it is enqueued once.
    pub async fn enqueue(&self, message: Message) -> Result<Receipt> {
        let (reply, answer) = oneshot::channel();
        let writer = &self.writers[self.route(&message)];
        let stopped = || Error::Stopped("the enqueuer");
        writer
            .send(Request { message, reply })
            .await
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Takes no more, and returns when everything taken is answered.
    pub async fn stop(self) {
        drop(self.writers);
        self.tasks.wait().await;
    }

    fn route(&self, message: &Message) -> usize {
        let key = message
            .ordering_key
            .as_ref()
            .or(message.dedupe_key.as_ref());
        let lanes = self.writers.len() / 2;
        match key {
            // Truncation is fine: any stable spread will do.
            Some(key) => lanes + self.hasher.hash_one(key) as usize % lanes,
            None => self.next.fetch_add(1, Ordering::Relaxed) % lanes,
        }
    }
}

async fn write(
    pool: PgPool,
    waker: Option<Waker>,
    mut requests: mpsc::Receiver<Request>,
    most: usize,
) {
    let mut batch: Vec<Request> = Vec::with_capacity(most);
    while requests.recv_many(&mut batch, most).await > 0 {
        metrics::histogram!("postrider_enqueue_group_size").record(batch.len() as f64);
        let messages: Vec<&Message> = batch.iter().map(|request| &request.message).collect();
        let answers = match catch_panic("enqueuing", group(&pool, &messages)).await {
            Ok(receipts) => receipts.into_iter().map(Ok).collect(),
            Err(error) if batch.len() == 1 => vec![Err(error)],
            Err(error) if was_refused(&error) => one_by_one(&pool, &messages).await,
            Err(error) => unanswered(batch.len(), error),
        };
        if let Some(waker) = &waker {
            waker.wake(&OUTBOX);
        }
        for (request, answer) in batch.drain(..).zip(answers) {
            // A caller that went away needs no answer.
            let _ = request.reply.send(answer);
        }
    }
}

/// Nothing was committed. After anything else the batch may have been, and repeating it could enqueue everything twice.
fn was_refused(error: &Error) -> bool {
    error.is_refusal() || is_lock_timeout(error)
}

fn is_lock_timeout(error: &Error) -> bool {
    matches!(error, Error::Database(error) if error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == "55P03"))
}

/// All in one transaction; receipts in the order of the messages.
async fn group(pool: &PgPool, messages: &[&Message]) -> Result<Vec<Receipt>> {
    let mut held = ConnGuard::acquire(pool).await?;
    let receipts = answer(CALL_TIMEOUT, group_on(&mut held, messages)).await;
    held.end(receipts)
}

async fn group_on(connection: &mut PgConnection, messages: &[&Message]) -> Result<Vec<Receipt>> {
    let plain: Vec<&Message> = messages
        .iter()
        .copied()
        .filter(|message| !message.is_keyed())
        .collect();
    let new = |id| Receipt {
        id,
        duplicate: false,
    };
    if plain.len() == messages.len() {
        // One statement is a transaction of its own: two round trips fewer.
        let ids = bulk::insert_for_ids(connection, &plain).await?;
        postrider_crashpoint::point!("enqueue.after_plain")?;
        return Ok(ids.into_iter().map(new).collect());
    }
    let mut tx = connection.begin().await?;
    sqlx::query(BOUND_LOCK_WAIT).execute(&mut *tx).await?;
    let mut receipts: Vec<Option<Receipt>> = vec![None; messages.len()];
    let mut keyed: Vec<usize> = (0..messages.len())
        .filter(|&at| messages[at].is_keyed())
        .collect();
    keyed.sort_by_key(|&at| lock_order(messages[at]));
    let sorted: Vec<&Message> = keyed.iter().map(|&at| messages[at]).collect();
    for (at, receipt) in keyed
        .into_iter()
        .zip(enqueue_keyed(&mut tx, &sorted).await?)
    {
        receipts[at] = Some(receipt);
    }
    let mut ids = if plain.is_empty() {
        Vec::new()
    } else {
        bulk::insert_for_ids(&mut tx, &plain).await?
    }
    .into_iter();
    postrider_crashpoint::point!("enqueue.before_commit")?;
    tx.commit().await?;
    postrider_crashpoint::point!("enqueue.after_commit")?;
    let receipts: Option<Vec<Receipt>> = receipts
        .into_iter()
        .map(|receipt| receipt.or_else(|| ids.next().map(new)))
        .collect();
    receipts.ok_or_else(|| Error::Unreadable {
        what: "postrider.outbox",
        problem: "an insert returned fewer ids than it was given messages".to_owned(),
    })
}

async fn one_by_one(pool: &PgPool, messages: &[&Message]) -> Vec<Result<Receipt>> {
    let mut answers = Vec::with_capacity(messages.len());
    for message in messages {
        let answer = match group(pool, std::slice::from_ref(message)).await {
            Ok(receipts) => receipts
                .into_iter()
                .next()
                .ok_or(Error::Stopped("the enqueuer")),
            Err(error) => Err(error),
        };
        answers.push(answer);
    }
    answers
}

/// The connection broke: nobody knows, and everybody is told so.
fn unanswered(count: usize, error: Error) -> Vec<Result<Receipt>> {
    let text = error.to_string();
    let others = std::iter::repeat_with(|| {
        Error::Database(sqlx::Error::Io(std::io::Error::other(text.clone())))
    });
    std::iter::once(error)
        .chain(others)
        .take(count)
        .map(Err)
        .collect()
}
