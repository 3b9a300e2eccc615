//! Batch mode: one handler call, one transaction and one settlement for many messages.

use std::error::Error as StdError;

use futures_util::future::BoxFuture;
use postrider_crashpoint as crashpoint;
use sqlx::{Postgres, Transaction};

use super::{Session, Subscriber, failure, redeliver};
use crate::error::{is_conflict, is_transient};
use crate::failure::{Category, Failure};
use crate::runtime::{BoxError, Verdict};
use crate::transport::{Delivery, MessageId, Receipt};

/// Handles messages in batches.
///
/// Duplicates are the handler's business: a crash between the commit and the acknowledgement redelivers the batch.
pub trait BatchHandler: Send + Sync {
    /// Handles the batch; one verdict per delivery, in their order.
    ///
    /// On error nothing may have been committed. If the database is unavailable, the whole batch is redelivered at no
    /// cost; after any other error each message is handled again alone.
    fn handle<'a>(&'a self, batch: &'a [Delivery])
    -> BoxFuture<'a, Result<BatchOutcome, BoxError>>;

    /// Called for a message that failed alone: its error, a panic or a timeout. By default the retry policy decides.
    ///
    /// A transaction in the outcome commits whatever the verdict is, e.g. to record the failure.
    fn on_failure<'a>(
        &'a self,
        _delivery: &'a Delivery,
        failure: Failure,
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(async move { Ok(vec![Verdict::retry(failure)].into()) })
    }
}

/// The verdicts on a batch, and what goes with them.
pub struct BatchOutcome {
    verdicts: Vec<Verdict>,
    tx: Option<Transaction<'static, Postgres>>,
    after_commit: Option<BoxFuture<'static, ()>>,
}

impl BatchOutcome {
    /// With the transaction that holds the effects. The loop commits it, together with the acknowledgements of what
    /// is `Done` where the transport allows that. It must hold nothing of messages with another verdict.
    #[must_use]
    pub fn in_transaction(mut self, tx: Transaction<'static, Postgres>) -> Self {
        self.tx = Some(tx);
        self
    }

    /// With work that runs once the effects have committed. The next batch waits for it; not run if the commit fails.
    #[must_use]
    pub fn after_commit(mut self, work: impl Future<Output = ()> + Send + 'static) -> Self {
        self.after_commit = Some(Box::pin(work));
        self
    }
}

impl From<Vec<Verdict>> for BatchOutcome {
    fn from(verdicts: Vec<Verdict>) -> Self {
        Self {
            verdicts,
            tx: None,
            after_commit: None,
        }
    }
}

impl std::fmt::Debug for BatchOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchOutcome")
            .field("verdicts", &self.verdicts)
            .finish_non_exhaustive()
    }
}

/// Deliveries that are still to be settled, and why.
type Unsettled = (Vec<Delivery>, BoxError);

impl Subscriber {
    pub(super) async fn handle_batch(
        &self,
        session: &Session,
        handler: &dyn BatchHandler,
        deliveries: Vec<Delivery>,
    ) {
        let Err((deliveries, error)) = self.attempt(session, handler, deliveries).await else {
            return;
        };
        if is_outage(&*error) {
            self.redeliver_all(session, deliveries, &error).await;
        } else if deliveries.len() == 1 {
            self.handle_failure(session, handler, deliveries, error)
                .await;
        } else {
            tracing::warn!(
                %error, group = self.group(), messages = deliveries.len(),
                "a batch failed; its messages are handled one by one"
            );
            for delivery in deliveries {
                let alone = self.attempt(session, handler, vec![delivery]).await;
                if let Err((deliveries, error)) = alone {
                    self.handle_failure(session, handler, deliveries, error)
                        .await;
                }
            }
        }
    }

    async fn attempt(
        &self,
        session: &Session,
        handler: &dyn BatchHandler,
        deliveries: Vec<Delivery>,
    ) -> Result<(), Unsettled> {
        match self
            .bounded(async { handler.handle(&deliveries).await })
            .await
        {
            Ok(outcome) => self.finish(session, deliveries, outcome).await,
            Err(error) => Err((deliveries, error)),
        }
    }

    /// One message failed alone.
    async fn handle_failure(
        &self,
        session: &Session,
        handler: &dyn BatchHandler,
        deliveries: Vec<Delivery>,
        error: BoxError,
    ) {
        let Some(delivery) = deliveries.first() else {
            return;
        };
        if is_transient(&*error) {
            return self.redeliver_all(session, deliveries, &error).await;
        }
        let failure = failure(error);
        let outcome = self
            .bounded(async { handler.on_failure(delivery, failure).await })
            .await;
        let finished = match outcome {
            Ok(outcome) => self.finish(session, deliveries, outcome).await,
            Err(error) => Err((deliveries, error)),
        };
        if let Err((deliveries, error)) = finished {
            self.redeliver_all(session, deliveries, &error).await;
        }
    }

    async fn redeliver_all(&self, session: &Session, deliveries: Vec<Delivery>, error: &BoxError) {
        let verdicts = vec![redeliver(&**error); deliveries.len()];
        self.settle(session, deliveries, verdicts).await;
    }

    /// Commits the effects and settles. An error means that nothing was committed or settled.
    async fn finish(
        &self,
        session: &Session,
        deliveries: Vec<Delivery>,
        outcome: BatchOutcome,
    ) -> Result<(), Unsettled> {
        let BatchOutcome {
            verdicts,
            tx,
            after_commit,
        } = outcome;
        if verdicts.len() != deliveries.len() {
            let text = format!(
                "the handler returned {} verdicts for {} messages",
                verdicts.len(),
                deliveries.len()
            );
            let failure = Failure::with_category("VERDICT_COUNT", Category::System, text);
            return Err((deliveries, failure.into()));
        }
        let (deliveries, verdicts) = match tx {
            Some(tx) if session.inbox.is_none() => {
                let (done, rest): (Vec<_>, Vec<_>) = deliveries
                    .into_iter()
                    .zip(verdicts)
                    .partition(|(_, verdict)| *verdict == Verdict::Done);
                if !self.commit_shared(session, tx, done).await {
                    return Ok(());
                }
                rest.into_iter().unzip()
            }
            Some(tx) => {
                if let Err(error) = self.bounded(commit(tx)).await {
                    return Err((deliveries, error));
                }
                (deliveries, verdicts)
            }
            None => (deliveries, verdicts),
        };
        self.settle(session, deliveries, verdicts).await;
        if let Some(work) = after_commit {
            work.await;
        }
        Ok(())
    }

    /// Acknowledges in the transaction of the effects and commits it. False if that failed: whatever did not commit is
    /// redelivered when its lease expires.
    async fn commit_shared(
        &self,
        session: &Session,
        mut tx: Transaction<'static, Postgres>,
        done: Vec<(Delivery, Verdict)>,
    ) -> bool {
        let (ids, receipts): (Vec<MessageId>, Vec<Receipt>) = done
            .into_iter()
            .map(|(delivery, _)| (delivery.message.id, delivery.receipt))
            .unzip();
        if !receipts.is_empty()
            && let Err(error) = session.consumer.settle_in(&mut tx, receipts).await
        {
            self.count_unsettled(&ids, &error);
            return false;
        }
        if let Err(error) = self.bounded(commit(tx)).await {
            tracing::warn!(
                error,
                group = self.group(),
                messages = ids.len(),
                "the commit of a batch was not confirmed; its messages are redelivered unless it did commit"
            );
            self.count("unsettled", ids.len());
            return false;
        }
        self.count("settled", ids.len());
        true
    }

    async fn settle(&self, session: &Session, deliveries: Vec<Delivery>, verdicts: Vec<Verdict>) {
        if deliveries.is_empty() {
            return;
        }
        let ids: Vec<MessageId> = deliveries.iter().map(|one| one.message.id).collect();
        let settled = async {
            crashpoint::point!("subscriber.before_batch_ack")
                .map_err(|error| self.engine_error(error))?;
            let receipts = deliveries.into_iter().map(|delivery| delivery.receipt);
            session
                .consumer
                .settle(receipts.zip(verdicts).collect())
                .await
        };
        match settled.await {
            Ok(fates) => self.count_settled(&fates),
            Err(error) => self.count_unsettled(&ids, &error),
        }
    }
}

async fn commit(tx: Transaction<'static, Postgres>) -> Result<(), BoxError> {
    crashpoint::point!("subscriber.before_batch_commit").map_err(crate::Error::from)?;
    Ok(tx.commit().await?)
}

/// The database is unavailable, which says nothing about any message. A conflict between transactions isn't an outage.
fn is_outage(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(is_conflict) {
            return false;
        }
        cause = error.source();
    }
    is_transient(error)
}
