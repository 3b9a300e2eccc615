//! Acceptance: request and outbox row in one transaction, and many payments in one commit.
//!
//! Posts that arrive while a commit is on its way to the disk share the next one; each caller is answered only when its
//! own commit is durable. A uuid always goes to the same writer, and repetitions within one batch are answered as if
//! they had come one after the other.

use std::collections::{HashMap, HashSet};

use postrider::{Error, catch_panic::catch_panic, wake::Waker};
use sqlx::PgPool;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    OUTBOX, counters,
    model::{Payment, PaymentView, Receipt, Status},
    store,
};

/// While one writer commits, the other collects.
const WRITERS: usize = 2;

/// At most so many payments share a commit.
const MOST: usize = 500;

/// So many posts may wait per writer before further ones wait outside.
const BACKLOG: usize = 4_096;

/// What became of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The first of its uuid.
    Accepted(Receipt),
    /// The same was posted before; so it stands.
    Replay(Receipt),
    /// Something else was posted before under the same uuid.
    Mismatch,
}

struct Post {
    payment: Payment,
    reply: oneshot::Sender<Result<Answer, Error>>,
}

/// Accepts payments, many at a time.
#[derive(Debug)]
pub(crate) struct Acceptor {
    writers: Vec<mpsc::Sender<Post>>,
}

impl Acceptor {
    /// Starts the writers, which end with the acceptor. Call it inside a tokio runtime.
    pub fn start(pool: &PgPool, waker: &Waker) -> Self {
        let writers = (0..WRITERS).map(|_| {
            let (sender, posts) = mpsc::channel(BACKLOG);
            let writer = Writer {
                pool: pool.clone(),
                waker: waker.clone(),
            };
            tokio::spawn(writer.run(posts));
            sender
        });
        Self {
            writers: writers.collect(),
        }
    }

    /// Accepts a payment; returns when that is durable.
    pub async fn accept(&self, payment: Payment) -> Result<Answer, Error> {
        let stopped = || Error::Stopped("the acceptance of payments");
        // Any stable spread will do; the last byte is random in every common version of uuid.
        let lane = usize::from(payment.uuid.as_bytes()[15]) % self.writers.len();
        let (reply, answer) = oneshot::channel();
        self.writers[lane]
            .send(Post { payment, reply })
            .await
            .map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

struct Writer {
    pool: PgPool,
    waker: Waker,
}

impl Writer {
    async fn run(self, mut posts: mpsc::Receiver<Post>) {
        let mut batch = Vec::with_capacity(MOST);
        while posts.recv_many(&mut batch, MOST).await > 0 {
            // Nobody waits for an answer any more: the client will repeat, if it brought a uuid.
            batch.retain(|post: &Post| !post.reply.is_closed());
            let payments: Vec<&Payment> = batch.iter().map(|post| &post.payment).collect();
            let answers = match self.accept_guarded(&payments).await {
                Ok(answers) => answers.into_iter().map(Ok).collect(),
                Err(error) if payments.len() > 1 && error.is_refusal() => {
                    self.one_by_one(&payments).await
                }
                Err(error) => unanswered(payments.len(), error),
            };
            for (post, answer) in batch.drain(..).zip(answers) {
                let _ = post.reply.send(answer);
            }
        }
    }

    /// A panic costs the batch that it hit; a writer that vanished would refuse its uuids for ever.
    async fn accept_guarded(&self, payments: &[&Payment]) -> Result<Vec<Answer>, Error> {
        catch_panic("the acceptance of payments", self.accept(payments)).await
    }

    /// One of them is bad: it fails alone.
    async fn one_by_one(&self, payments: &[&Payment]) -> Vec<Result<Answer, Error>> {
        let mut answers = Vec::with_capacity(payments.len());
        for payment in payments {
            let alone = self.accept_guarded(std::slice::from_ref(payment)).await;
            answers.push(alone.and_then(|mut answers| answers.pop().ok_or_else(vanished)));
        }
        answers
    }

    async fn accept(&self, payments: &[&Payment]) -> Result<Vec<Answer>, Error> {
        if payments.is_empty() {
            return Ok(Vec::new());
        }
        let mut seen = HashSet::with_capacity(payments.len());
        let firsts: Vec<&Payment> = payments
            .iter()
            .copied()
            .filter(|payment| seen.insert(payment.uuid))
            .collect();
        postrider_crashpoint::point!("payments.before_accept")?;
        let mut new: HashSet<Uuid> = store::insert(&self.pool, &firsts)
            .await?
            .into_iter()
            .collect();
        postrider_crashpoint::point!("payments.after_accept")?;
        if !new.is_empty() {
            counters::accepted(new.len() as u64);
            self.waker.wake(&OUTBOX);
        }
        // The first of each new uuid is accepted; every other post is compared with what is recorded.
        let fresh: Vec<bool> = payments
            .iter()
            .map(|payment| new.remove(&payment.uuid))
            .collect();
        let repeated: Vec<Uuid> = payments
            .iter()
            .zip(&fresh)
            .filter(|(_, fresh)| !**fresh)
            .map(|(payment, _)| payment.uuid)
            .collect();
        let known = self.known(&repeated).await?;
        payments
            .iter()
            .zip(fresh)
            .map(|(payment, fresh)| {
                let uuid = payment.uuid;
                if fresh {
                    let status = Status::Pending;
                    return Ok(Answer::Accepted(Receipt { uuid, status }));
                }
                let recorded = known.get(&uuid).ok_or_else(vanished)?;
                let status = recorded.status;
                Ok(if is_same(payment, recorded) {
                    Answer::Replay(Receipt { uuid, status })
                } else {
                    Answer::Mismatch
                })
            })
            .collect()
    }

    async fn known(&self, uuids: &[Uuid]) -> Result<HashMap<Uuid, PaymentView>, Error> {
        if uuids.is_empty() {
            return Ok(HashMap::new());
        }
        let known = store::known(&self.pool, uuids).await?;
        Ok(known
            .into_iter()
            .map(|known| (known.view.uuid, known.view))
            .collect())
    }
}

/// Two posts are the same when they mean the same: amounts are compared by value.
fn is_same(payment: &Payment, recorded: &PaymentView) -> bool {
    payment.account_id == recorded.account_id
        && payment.money.to_string() == recorded.amount
        && payment.money.currency.code() == recorded.currency
        && payment.description == recorded.description
}

/// Requests are never deleted by us.
fn vanished() -> Error {
    Error::Unreadable {
        what: "payments.request",
        problem: "a request was there and is gone; who deleted it?".to_owned(),
    }
}

/// Nothing was committed, or nobody knows: everybody is told so, and may repeat with the same uuid.
fn unanswered(count: usize, error: Error) -> Vec<Result<Answer, Error>> {
    let text = error.to_string();
    let others = std::iter::repeat_with(|| {
        let error = sqlx::Error::Io(std::io::Error::other(text.clone()));
        Error::Database(error)
    });
    std::iter::once(error)
        .chain(others)
        .take(count)
        .map(Err)
        .collect()
}
