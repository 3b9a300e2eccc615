//! A desk where the questions of many tasks are answered together: one round trip to the database for all that came
//! while the last one was under way.

use std::{future::Future, sync::Arc};

use tokio::sync::{mpsc, oneshot};

/// Why there is no answer. Shared, because one failure is the answer to many questions.
pub type Unanswered = Arc<sqlx::Error>;

type Question<Q, A> = (Q, oneshot::Sender<Result<A, Unanswered>>);

/// Where to ask. The clerk behind it ends with the last desk.
#[derive(Debug)]
pub struct Desk<Q, A> {
    questions: mpsc::Sender<Question<Q, A>>,
}

impl<Q, A> Desk<Q, A>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    /// Opens a desk that answers up to `most` questions at once: `answer` gives one answer per question, in their order.
    pub fn open<F, Fut>(most: usize, answer: F) -> Self
    where
        F: Fn(Vec<Q>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Vec<A>, sqlx::Error>> + Send,
    {
        let (questions, mut asked) = mpsc::channel::<Question<Q, A>>(most);
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(most);
            while asked.recv_many(&mut batch, most).await > 0 {
                // Who has gone (its lease was lost) needs no answer, and must not write anything.
                batch.retain(|(_, reply)| !reply.is_closed());
                let (questions, replies): (Vec<Q>, Vec<_>) = batch.drain(..).unzip();
                if questions.is_empty() {
                    continue;
                }
                match answer(questions).await {
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
        });
        Self { questions }
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, question: Q) -> Result<A, Unanswered> {
        let closed = || Arc::new(sqlx::Error::WorkerCrashed);
        let (reply, answer) = oneshot::channel();
        let sent = self.questions.send((question, reply)).await;
        sent.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}
