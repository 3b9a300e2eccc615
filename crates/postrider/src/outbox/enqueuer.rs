//! Group commit for single messages: many callers share a transaction, and each waits for its durable commit.
//!
//! Built on [`Batcher`]. Messages with keys have lanes of their own, because another transaction may hold a key's lock,
//! and that must not delay messages without one. A key always takes the same lane. A message that the database rejects
//! fails alone.

use sqlx::{Connection, PgConnection, PgPool};

use super::enqueue::{enqueue_keyed, lock_order};
use super::{Message, OUTBOX, Receipt, bulk};
use crate::Result;
use crate::batcher::{Batcher, BatcherOptions};
use crate::wake::Waker;

/// How enqueues are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnqueuerOptions {
    /// Number of writers, and as many again for messages with keys. Each uses one connection at a time.
    pub writers: usize,
    /// Maximum number of messages per commit.
    pub batch: usize,
    /// Number of callers that may wait per writer before further ones are held back.
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

/// A message whose key is locked by another open transaction fails after this long.
const BOUND_LOCK_WAIT: &str = "set local lock_timeout = '2s'";

/// Enqueues single messages outside any transaction, many per commit. Share it behind an `Arc`.
///
/// ```no_run
/// use postrider::outbox::{Enqueuer, EnqueuerOptions, Message};
///
/// # async fn example(pool: &sqlx::PgPool) -> postrider::Result<()> {
/// let enqueuer = Enqueuer::start(pool, None, EnqueuerOptions::default());
/// let receipt = enqueuer.enqueue(Message::new("emails", &"ada@example.org")?).await?;
/// assert!(!receipt.duplicate);
/// enqueuer.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Enqueuer {
    plain: Batcher<Message, Receipt>,
    keyed: Batcher<Message, Receipt>,
}

impl Enqueuer {
    /// Starts the writers. Call it inside a tokio runtime.
    #[must_use]
    pub fn start(pool: &PgPool, waker: Option<&Waker>, options: EnqueuerOptions) -> Self {
        let lanes = BatcherOptions {
            lanes: options.writers,
            max_batch: options.batch,
            backlog: options.backlog,
            ..BatcherOptions::new("the enqueuer")
        };
        let wake = {
            let waker = waker.cloned();
            move || waker.iter().for_each(|waker| waker.wake(&OUTBOX))
        };
        let wake_keyed = wake.clone();
        Self {
            plain: Batcher::with_connection(pool.clone(), lanes, move |connection, messages| {
                let wake = wake.clone();
                Box::pin(async move {
                    let receipts = enqueue_plain(connection, messages).await;
                    receipts.inspect(|_| wake())
                })
            }),
            keyed: Batcher::with_connection(pool.clone(), lanes, move |connection, messages| {
                let wake = wake_keyed.clone();
                Box::pin(async move {
                    let receipts = enqueue_sorted(connection, messages).await;
                    receipts.inspect(|_| wake())
                })
            }),
        }
    }

    /// Enqueues a message; returns when it is durably committed.
    ///
    /// After a transient error (see [`Error::is_transient`](crate::Error::is_transient)) the outcome can be unknown, as with any commit: repeat with
    /// a dedupe key to be sure that it is enqueued once.
    pub async fn enqueue(&self, message: Message) -> Result<Receipt> {
        let key = message
            .ordering_key
            .as_ref()
            .or(message.dedupe_key.as_ref());
        match key.cloned() {
            Some(key) => self.keyed.call_keyed(key, message).await,
            None => self.plain.call(message).await,
        }
    }

    /// Accepts no more messages, and returns when all accepted ones are answered.
    pub async fn stop(self) {
        self.plain.stop().await;
        self.keyed.stop().await;
    }
}

async fn enqueue_plain(
    connection: &mut PgConnection,
    messages: &[Message],
) -> Result<Vec<Receipt>> {
    record_group_size(messages);
    // One statement is a transaction of its own: two round trips fewer.
    let messages: Vec<&Message> = messages.iter().collect();
    let ids = bulk::insert_for_ids(connection, &messages).await?;
    postrider_crashpoint::point!("enqueue.after_plain")?;
    let receipt = |id| Receipt {
        id,
        duplicate: false,
    };
    Ok(ids.into_iter().map(receipt).collect())
}

/// Takes the locks of the keys in sorted order; receipts are in the order of the messages.
async fn enqueue_sorted(
    connection: &mut PgConnection,
    messages: &[Message],
) -> Result<Vec<Receipt>> {
    record_group_size(messages);
    let mut order: Vec<usize> = (0..messages.len()).collect();
    order.sort_by_key(|&at| lock_order(&messages[at]));
    let sorted: Vec<&Message> = order.iter().map(|&at| &messages[at]).collect();
    let mut tx = connection.begin().await?;
    sqlx::query(BOUND_LOCK_WAIT).execute(&mut *tx).await?;
    let receipts = enqueue_keyed(&mut tx, &sorted).await?;
    postrider_crashpoint::point!("enqueue.before_commit")?;
    tx.commit().await?;
    postrider_crashpoint::point!("enqueue.after_commit")?;
    let mut receipts: Vec<(usize, Receipt)> = order.into_iter().zip(receipts).collect();
    receipts.sort_unstable_by_key(|(at, _)| *at);
    Ok(receipts.into_iter().map(|(_, receipt)| receipt).collect())
}

fn record_group_size(messages: &[Message]) {
    metrics::histogram!("postrider_enqueue_group_size").record(messages.len() as f64);
}
