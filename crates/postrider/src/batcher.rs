//! A desk where the questions of many tasks are answered together: one round trip to the database for all that came
//! while the last one was under way.

use std::{future::Future, sync::Arc};

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgPool};
use tokio::sync::{mpsc, oneshot};

use crate::conn::{IDLE_TIMEOUT, StickyConn};

/// Why there is no answer. Shared, because one failure is the answer to many questions.
pub type CallError = Arc<sqlx::Error>;

type Reply<A> = oneshot::Sender<Result<A, CallError>>;

type Question<Q, A> = (Q, Reply<A>);

/// Where to ask. The clerk behind it ends with the last desk.
#[derive(Debug)]
pub struct Batcher<Q, A> {
    questions: mpsc::Sender<Question<Q, A>>,
}

impl<Q, A> Batcher<Q, A>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    /// Opens a desk that answers up to `most` questions at once: `answer` gives one answer per question, in their order.
    pub fn new<F, Fut>(most: usize, answer: F) -> Self
    where
        F: Fn(Vec<Q>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Vec<A>, sqlx::Error>> + Send,
    {
        let (questions, mut asked) = mpsc::channel(most);
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(most);
            while asked.recv_many(&mut batch, most).await > 0 {
                let (questions, replies) = still_waiting(&mut batch);
                if !questions.is_empty() {
                    reply(replies, answer(questions).await);
                }
            }
        });
        Self { questions }
    }

    /// The same with a connection in hand, which is kept while questions follow each other.
    pub fn with_connection<F>(pool: PgPool, most: usize, answer: F) -> Self
    where
        F: for<'c> Fn(&'c mut PgConnection, Vec<Q>) -> BoxFuture<'c, Result<Vec<A>, sqlx::Error>>
            + Send
            + Sync
            + 'static,
    {
        let (questions, mut asked) = mpsc::channel(most);
        tokio::spawn(async move {
            let mut kept = StickyConn::new(pool);
            let mut batch = Vec::with_capacity(most);
            loop {
                let receiving = asked.recv_many(&mut batch, most);
                let received = match kept.is_kept() {
                    true => tokio::time::timeout(IDLE_TIMEOUT, receiving).await,
                    false => Ok(receiving.await),
                };
                match received {
                    Err(_) => kept.give_back(),
                    Ok(0) => break,
                    Ok(_) => {
                        let (questions, replies) = still_waiting(&mut batch);
                        if !questions.is_empty() {
                            let answers = kept.call(|connection| answer(connection, questions));
                            reply(replies, answers.await);
                        }
                    }
                }
            }
        });
        Self { questions }
    }

    /// Asks, and waits for the answer.
    pub async fn call(&self, question: Q) -> Result<A, CallError> {
        let closed = || Arc::new(sqlx::Error::WorkerCrashed);
        let (reply, answer) = oneshot::channel();
        let sent = self.questions.send((question, reply)).await;
        sent.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

/// Who has gone (its lease was lost) needs no answer, and must not write anything.
fn still_waiting<Q, A>(batch: &mut Vec<Question<Q, A>>) -> (Vec<Q>, Vec<Reply<A>>) {
    batch.retain(|(_, reply)| !reply.is_closed());
    batch.drain(..).unzip()
}

fn reply<A>(replies: Vec<Reply<A>>, answers: Result<Vec<A>, sqlx::Error>) {
    match answers {
        Ok(answers) => {
            for (reply, answer) in replies.into_iter().zip(answers) {
                let _ = reply.send(Ok(answer));
            }
        }
        Err(error) => {
            let error = Arc::new(error);
            for reply in replies {
                let _ = reply.send(Err(Arc::clone(&error)));
            }
        }
    }
}
