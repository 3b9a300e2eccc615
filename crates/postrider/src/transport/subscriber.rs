//! The consumer loop: receives a group's messages, calls a handler, settles each message by its verdict.
//!
//! Two modes share the loop:
//!
//! - **Per message** ([`Subscriber::new`]): the handler writes in a transaction that also acknowledges the message.
//!   Where the deliveries live in the same database the acknowledgement is part of that transaction; otherwise the
//!   [inbox](crate::inbox) is. Either way the effect commits once, and the handler doesn't know which transport is
//!   configured.
//! - **Batch** ([`Subscriber::batch`]): a [`BatchHandler`] gets up to N messages and returns one verdict each. It may
//!   open a transaction, write the effects of the whole batch and return it with the verdicts: the loop acknowledges
//!   what is `Done` in that transaction (same database) or after its commit (any other transport). A batch handler
//!   recognises duplicates itself: by a unique key of its own, or with
//!   [`Inbox::first_times`](crate::inbox::Inbox::first_times) in the same transaction.
//!
//! What the loop does in both modes:
//!
//! - A transport or a database that is unavailable costs no attempts: the loop backs off, messages are redelivered.
//! - A panic or a timeout in a handler is a failed attempt; it ends neither the loop nor other messages' handlers.
//! - If a batch fails as a whole, each of its messages is handled again alone, so that one bad message fails alone.
//!   What fails alone goes to [`BatchHandler::on_failure`], which by default leaves it to the retry policy.
//! - On stop it finishes what is being handled and returns the rest to the transport at no cost.

mod batch;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use postrider_crashpoint as crashpoint;
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

pub use batch::{BatchHandler, BatchOutcome};

use super::{
    Consumer, Delivery, Fate, Message, MessageId, Receipt, Subscription, Transport, TransportError,
};
use crate::error::is_transient;
use crate::failure::{Category, Failure};
use crate::inbox::Inbox;
use crate::runtime::{BoxError, Verdict};

/// Handles one message in the transaction that also acknowledges it. Anything but [`Verdict::Done`] rolls back.
pub type MessageHandler = dyn for<'t> Fn(&'t mut PgConnection, &'t Message) -> BoxFuture<'t, Result<Verdict, BoxError>>
    + Send
    + Sync;

const RECEIVE_WAIT: Duration = Duration::from_secs(1);
const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
const HANDLER_TIMEOUT: Duration = Duration::from_secs(300);

/// When a message is redelivered that could not be handled for reasons that aren't its own.
const REDELIVERY_DELAY: Duration = Duration::from_secs(1);

/// Runs a handler over a group's messages.
pub struct Subscriber {
    transport: Arc<dyn Transport>,
    subscription: Subscription,
    pool: PgPool,
    mode: Mode,
    concurrency: usize,
    handler_timeout: Duration,
}

enum Mode {
    PerMessage(Arc<MessageHandler>),
    Batch {
        handler: Arc<dyn BatchHandler>,
        max: usize,
    },
}

/// A subscribed consumer.
struct Session {
    consumer: Box<dyn Consumer>,
    /// `None` if deliveries live in the database of the effects, where both commit together.
    inbox: Option<Inbox>,
}

impl Subscriber {
    /// Handles messages one by one, with effects in this database.
    #[must_use]
    pub fn new(
        transport: Arc<dyn Transport>,
        subscription: Subscription,
        pool: PgPool,
        handler: Arc<MessageHandler>,
    ) -> Self {
        Self::with_mode(transport, subscription, pool, Mode::PerMessage(handler), 4)
    }

    /// Handles up to `max` messages together, with effects in this database; one batch at a time.
    #[must_use]
    pub fn batch(
        transport: Arc<dyn Transport>,
        subscription: Subscription,
        pool: PgPool,
        max: usize,
        handler: Arc<dyn BatchHandler>,
    ) -> Self {
        let max = max.max(1);
        let mode = Mode::Batch { handler, max };
        Self::with_mode(transport, subscription, pool, mode, 1)
    }

    fn with_mode(
        transport: Arc<dyn Transport>,
        subscription: Subscription,
        pool: PgPool,
        mode: Mode,
        concurrency: usize,
    ) -> Self {
        crate::internal::counters::register_group(subscription.group());
        Self {
            transport,
            subscription,
            pool,
            mode,
            concurrency,
            handler_timeout: HANDLER_TIMEOUT,
        }
    }

    /// Maximum concurrent handler calls (default: 4 messages, or 1 batch). Each uses a connection of the pool.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Maximum duration of one handler call (default 5 minutes); after that the attempt has failed.
    #[must_use]
    pub const fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.handler_timeout = timeout;
        self
    }

    /// Consumes until `stop`. Waits for a transport or a database that is unavailable; ends with an error only if the
    /// transport refuses the subscription.
    pub async fn run(self, stop: CancellationToken) -> Result<(), TransportError> {
        while !stop.is_cancelled() {
            let Some(opened) = stop.run_until_cancelled(self.open()).await else {
                break;
            };
            let session = opened?;
            let ended = self.consume(&session, &stop).await;
            let closed = session.consumer.close().await;
            if !matches!(ended, Err(TransportError::Closed)) {
                return ended.and(closed);
            }
            tracing::warn!(
                group = self.group(),
                "the transport closed the consumer; subscribing again"
            );
            stop.run_until_cancelled(tokio::time::sleep(MIN_BACKOFF))
                .await;
        }
        Ok(())
    }

    fn group(&self) -> &str {
        self.subscription.group()
    }

    async fn open(&self) -> Result<Session, TransportError> {
        let mut backoff = MIN_BACKOFF;
        loop {
            let opened = async {
                let consumer = self.transport.subscribe(self.subscription.clone()).await?;
                let shared = consumer.shares(&self.pool).await?;
                Ok((consumer, shared))
            };
            match opened.await {
                Ok((consumer, true)) => {
                    return Ok(Session {
                        consumer,
                        inbox: None,
                    });
                }
                Ok((consumer, false)) => {
                    let inbox = Some(Inbox::new(self.group()).map_err(|e| self.engine_error(e))?);
                    return Ok(Session { consumer, inbox });
                }
                Err(error) if TransportError::is_transient(&error) => {
                    tracing::warn!(%error, group = self.group(), "subscribing failed; retrying");
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives and handles until the stop or a permanent error, then finishes what is being handled.
    async fn consume(
        &self,
        session: &Session,
        stop: &CancellationToken,
    ) -> Result<(), TransportError> {
        let mut running = FuturesUnordered::new();
        let mut backoff = MIN_BACKOFF;
        let ended = loop {
            if stop.is_cancelled() {
                break Ok(());
            }
            let room = self.concurrency - running.len();
            tokio::select! {
                Some(()) = running.next(), if !running.is_empty() => {}
                received = session.consumer.receive(self.receive_max(room), RECEIVE_WAIT), if room > 0 => match received {
                    Ok(deliveries) => {
                        backoff = MIN_BACKOFF;
                        for unit in self.units(deliveries) {
                            running.push(self.handle(session, unit));
                        }
                    }
                    Err(error) if error.is_transient() => {
                        tracing::warn!(%error, group = self.group(), "receiving failed; retrying");
                        stop.run_until_cancelled(tokio::time::sleep(backoff)).await;
                        backoff = (backoff * 2).min(MAX_BACKOFF);
                    }
                    Err(error) => break Err(error),
                },
                () = stop.cancelled() => {}
            }
        };
        while running.next().await.is_some() {}
        ended
    }

    const fn receive_max(&self, room: usize) -> usize {
        match self.mode {
            Mode::PerMessage(_) => room,
            Mode::Batch { max, .. } => max,
        }
    }

    /// What one handler call gets.
    fn units(&self, deliveries: Vec<Delivery>) -> Vec<Vec<Delivery>> {
        match self.mode {
            _ if deliveries.is_empty() => Vec::new(),
            Mode::PerMessage(_) => deliveries.into_iter().map(|one| vec![one]).collect(),
            Mode::Batch { .. } => vec![deliveries],
        }
    }

    async fn handle(&self, session: &Session, deliveries: Vec<Delivery>) {
        let work = async {
            match &self.mode {
                Mode::Batch { handler, .. } => {
                    self.handle_batch(session, &**handler, deliveries).await;
                }
                Mode::PerMessage(handler) => {
                    for delivery in deliveries {
                        self.handle_one(session, &**handler, delivery).await;
                    }
                }
            }
        };
        if AssertUnwindSafe(work).catch_unwind().await.is_err() {
            // The receipts are dropped with it.
            tracing::error!(
                group = self.group(),
                "settling messages panicked, which is a bug; they are redelivered when their lease expires"
            );
        }
    }

    async fn handle_one(&self, session: &Session, handler: &MessageHandler, delivery: Delivery) {
        let Delivery {
            message, receipt, ..
        } = delivery;
        let settled = match &session.inbox {
            None => {
                self.with_delivery(session, handler, &message, receipt)
                    .await
            }
            Some(inbox) => {
                self.with_inbox(session, inbox, handler, &message, receipt)
                    .await
            }
        };
        match settled {
            Ok(fate) => self.count_settled(&[fate]),
            Err(error) => self.count_unsettled(&[message.id], &error),
        }
    }

    /// Effect and acknowledgement in one transaction.
    async fn with_delivery(
        &self,
        session: &Session,
        handler: &MessageHandler,
        message: &Message,
        receipt: Receipt,
    ) -> Result<Fate, TransportError> {
        let consumer = &session.consumer;
        let mut tx = match self.pool.begin().await {
            Ok(tx) => tx,
            Err(error) => return consumer.settle_one(receipt, redeliver(&error)).await,
        };
        match self.call(handler, &mut tx, message).await {
            Verdict::Done => {
                consumer.settle_in(&mut tx, vec![receipt]).await?;
                crashpoint::point!("subscriber.before_shared_commit")
                    .map_err(|error| self.engine_error(error))?;
                // If the connection breaks here, the message is redelivered unless this did commit.
                tx.commit()
                    .await
                    .map_err(|error| self.engine_error(error))?;
                Ok(Fate::Settled)
            }
            verdict => {
                drop(tx);
                consumer.settle_one(receipt, verdict).await
            }
        }
    }

    /// Effect and inbox in one transaction, then the acknowledgement.
    async fn with_inbox(
        &self,
        session: &Session,
        inbox: &Inbox,
        handler: &MessageHandler,
        message: &Message,
        receipt: Receipt,
    ) -> Result<Fate, TransportError> {
        let verdict = match self.once(inbox, handler, message).await {
            Ok(verdict) => verdict,
            Err(error) => failed_attempt(error),
        };
        crashpoint::point!("subscriber.before_ack").map_err(|error| self.engine_error(error))?;
        session.consumer.settle_one(receipt, verdict).await
    }

    async fn once(
        &self,
        inbox: &Inbox,
        handler: &MessageHandler,
        message: &Message,
    ) -> Result<Verdict, BoxError> {
        let mut tx = self.pool.begin().await?;
        if !inbox.first_time(&mut tx, &message.id.to_string()).await? {
            return Ok(Verdict::Done);
        }
        let verdict = self.call(handler, &mut tx, message).await;
        if verdict == Verdict::Done {
            crashpoint::point!("subscriber.before_commit").map_err(crate::Error::from)?;
            tx.commit().await?;
        }
        Ok(verdict)
    }

    async fn call(
        &self,
        handler: &MessageHandler,
        tx: &mut PgConnection,
        message: &Message,
    ) -> Verdict {
        self.bounded(async { handler(tx, message).await })
            .await
            .unwrap_or_else(failed_attempt)
    }

    /// A panic or a timeout of a handler is a failed attempt.
    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, BoxError> {
        let call = AssertUnwindSafe(call).catch_unwind();
        let failure =
            |code, text: &str| Failure::with_category(code, Category::System, text.to_owned());
        match tokio::time::timeout(self.handler_timeout, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(failure("HANDLER_PANIC", "the handler panicked").into()),
            Err(_) => {
                let text = format!("the handler took longer than {:?}", self.handler_timeout);
                Err(failure("HANDLER_TIMEOUT", &text).into())
            }
        }
    }

    fn count(&self, outcome: &'static str, messages: usize) {
        let group = self.group().to_owned();
        metrics::counter!("postrider_consumed_total", "group" => group, "outcome" => outcome)
            .increment(messages as u64);
    }

    fn count_settled(&self, fates: &[Fate]) {
        for fate in fates {
            match fate {
                Fate::Settled => self.count("settled", 1),
                Fate::Dead => self.count("dead", 1),
                Fate::Lost => self.count("lost", 1),
            }
        }
    }

    fn count_unsettled(&self, messages: &[MessageId], error: &TransportError) {
        if matches!(error, TransportError::Lost) {
            return self.count("lost", messages.len());
        }
        let first = messages.first().map(ToString::to_string);
        tracing::warn!(
            %error, group = self.group(), messages = messages.len(), first,
            "messages could not be settled; they are redelivered when their lease expires"
        );
        self.count("unsettled", messages.len());
    }

    fn engine_error(&self, error: impl Into<crate::Error>) -> TransportError {
        TransportError::from_error(self.transport.name(), error.into())
    }
}

/// The verdict for an error that a handler returned: redelivery at no cost if our database is unavailable or two
/// transactions conflicted, otherwise a failed attempt.
fn failed_attempt(error: BoxError) -> Verdict {
    if is_transient(&*error) {
        return redeliver(&*error);
    }
    Verdict::retry(failure(error))
}

/// The handler's own [`Failure`] if it is one.
fn failure(error: BoxError) -> Failure {
    match error.downcast::<Failure>() {
        Ok(failure) => *failure,
        Err(error) => Failure::from_error("UNEXPECTED", &*error),
    }
}

fn redeliver(error: &(dyn std::error::Error + 'static)) -> Verdict {
    tracing::warn!(%error, "a message could not be handled now; it is redelivered");
    Verdict::Snooze(REDELIVERY_DELAY)
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber")
            .field("transport", &self.transport)
            .field("subscription", &self.subscription)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}
