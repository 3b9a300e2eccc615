//! A consumer with a database: each message has its effect once, whatever the transport.
//!
//! The handler writes in a transaction that also says "this message is done": by the delivery itself where both live in
//! one database, by the inbox otherwise. So the effect commits once or not at all, and a slice need not know which
//! transport is configured.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use postrider_crashpoint as crashpoint;
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use super::{Consumer, Delivery, Fate, Message, Receipt, Subscription, Transport, TransportError};
use crate::error::database_is_transient;
use crate::failure::{Category, Failure};
use crate::inbox::{Inbox, InboxError};
use crate::runtime::{BoxError, Verdict};

/// What to do with a message, in the transaction that also marks it as done. Anything but [`Verdict::Done`] rolls back.
pub type Handle = dyn for<'t> Fn(&'t mut PgConnection, &'t Message) -> BoxFuture<'t, Result<Verdict, BoxError>>
    + Send
    + Sync;

const WAIT: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Runs a handler over a group's messages.
pub struct Subscriber {
    transport: Arc<dyn Transport>,
    subscription: Subscription,
    pool: PgPool,
    handle: Arc<Handle>,
    concurrency: usize,
}

/// How one message is marked as done.
enum Marking {
    /// With the effect: the delivery lives in the same database.
    Delivery,
    /// By the inbox with the effect, and at the transport after the commit.
    Inbox(Inbox),
}

impl Subscriber {
    /// Handles the subscription's messages with effects in this database.
    #[must_use]
    pub fn new(
        transport: Arc<dyn Transport>,
        subscription: Subscription,
        pool: PgPool,
        handle: Arc<Handle>,
    ) -> Self {
        crate::counters::register_group(subscription.group());
        Self {
            transport,
            subscription,
            pool,
            handle,
            concurrency: 4,
        }
    }

    /// How many messages are handled at once, each with a connection of the pool (default 4).
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Works until told to stop; then finishes what is being handled and gives back the rest. Waits for a transport or
    /// a database that is away.
    pub async fn run(self, stop: CancellationToken) -> Result<(), TransportError> {
        let Some(opened) = stop.run_until_cancelled(self.open()).await else {
            return Ok(());
        };
        let (consumer, marking) = opened?;
        let mut running = FuturesUnordered::new();
        let mut pause = Duration::from_millis(50);
        while !stop.is_cancelled() {
            let room = self.concurrency - running.len();
            tokio::select! {
                Some(()) = running.next(), if !running.is_empty() => {}
                received = consumer.receive(room, WAIT), if room > 0 => match received {
                    Ok(deliveries) => {
                        pause = Duration::from_millis(50);
                        running.extend(deliveries.into_iter().map(|delivery| self.handle(&*consumer, &marking, delivery)));
                    }
                    Err(error) if error.is_transient() => {
                        tracing::warn!(%error, group = self.subscription.group(), "receiving waits");
                        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                    Err(error) => return Err(error),
                },
                () = stop.cancelled() => {}
            }
        }
        while running.next().await.is_some() {}
        drop(running);
        consumer.close().await
    }

    async fn open(&self) -> Result<(Box<dyn Consumer>, Marking), TransportError> {
        let mut pause = Duration::from_millis(50);
        loop {
            let opened = async {
                let consumer = self.transport.subscribe(self.subscription.clone()).await?;
                let shares = consumer.shares(&self.pool).await?;
                Ok((consumer, shares))
            };
            match opened.await {
                Ok((consumer, true)) => return Ok((consumer, Marking::Delivery)),
                Ok((consumer, false)) => {
                    let inbox = Inbox::new(self.subscription.group())
                        .map_err(|error| TransportError::of_engine(self.transport.name(), error))?;
                    return Ok((consumer, Marking::Inbox(inbox)));
                }
                Err(error) if TransportError::is_transient(&error) => {
                    tracing::warn!(%error, group = self.subscription.group(), "subscribing waits");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn handle(&self, consumer: &dyn Consumer, marking: &Marking, delivery: Delivery) {
        let Delivery {
            message, receipt, ..
        } = delivery;
        let group = self.subscription.group().to_owned();
        let fate = match marking {
            Marking::Delivery => self.with_delivery(consumer, &message, receipt).await,
            Marking::Inbox(inbox) => self.with_inbox(consumer, inbox, &message, receipt).await,
        };
        let outcome = match &fate {
            Ok(Fate::Settled) => "settled",
            Ok(Fate::Dead) => "dead",
            Ok(Fate::Lost) | Err(TransportError::Lost) => "lost",
            Err(error) => {
                tracing::warn!(%error, group, message = %message.id, "could not be settled; it comes again");
                "unsettled"
            }
        };
        metrics::counter!("postrider_consumed_total", "group" => group, "outcome" => outcome)
            .increment(1);
    }

    /// Effect and acknowledgement in one transaction.
    async fn with_delivery(
        &self,
        consumer: &dyn Consumer,
        message: &Message,
        receipt: Receipt,
    ) -> Result<Fate, TransportError> {
        let mut tx = match self.pool.begin().await {
            Ok(tx) => tx,
            Err(error) => return consumer.settle_one(receipt, not_now(&error)).await,
        };
        match self.call(&mut tx, message).await {
            Verdict::Done => {
                consumer.settle_in(&mut tx, vec![receipt]).await?;
                crashpoint::point!("subscriber.before_shared_commit")
                    .map_err(|error| self.trouble(error))?;
                // If the connection breaks here nobody knows whether it committed. It comes again if it did not.
                tx.commit().await.map_err(|error| self.trouble(error))?;
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
        consumer: &dyn Consumer,
        inbox: &Inbox,
        message: &Message,
        receipt: Receipt,
    ) -> Result<Fate, TransportError> {
        let verdict = match self.once(inbox, message).await {
            Ok(verdict) => verdict,
            Err(error) => unexpected(error.into()),
        };
        crashpoint::point!("subscriber.before_ack").map_err(|error| self.trouble(error))?;
        consumer.settle_one(receipt, verdict).await
    }

    async fn once(&self, inbox: &Inbox, message: &Message) -> Result<Verdict, crate::Error> {
        let mut tx = self.pool.begin().await?;
        match inbox.first_time(&mut tx, &message.id.to_string()).await {
            Ok(true) => {}
            Ok(false) => return Ok(Verdict::Done),
            Err(InboxError::Busy) => return Ok(Verdict::Snooze(Duration::from_secs(1))),
            Err(InboxError::Engine(error)) => return Err(error),
        }
        let verdict = self.call(&mut tx, message).await;
        if verdict == Verdict::Done {
            crashpoint::point!("subscriber.before_commit")?;
            tx.commit().await?;
        }
        Ok(verdict)
    }

    /// Calls the handler; a panic is a failed attempt.
    async fn call(&self, tx: &mut PgConnection, message: &Message) -> Verdict {
        let answer = AssertUnwindSafe((self.handle)(tx, message))
            .catch_unwind()
            .await;
        match answer {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => unexpected(error),
            Err(_) => Verdict::retry(Failure::with_category(
                "HANDLER_PANIC",
                Category::System,
                "the handler panicked",
            )),
        }
    }

    fn trouble(&self, error: impl Into<crate::Error>) -> TransportError {
        TransportError::of_engine(self.transport.name(), error.into())
    }
}

/// What an error means that a handler let through: its own failure if it is one; "not now" if the database is away or
/// two transactions stood in each other's way; otherwise something that may pass.
fn unexpected(error: BoxError) -> Verdict {
    let error = match error.downcast::<Failure>() {
        Ok(failure) => return Verdict::retry(*failure),
        Err(error) => error,
    };
    let by_driver = error.downcast_ref().is_some_and(database_is_transient);
    let by_engine = error.downcast_ref().is_some_and(crate::Error::is_transient);
    if by_driver || by_engine {
        return not_now(&*error);
    }
    Verdict::retry(Failure::from_error("UNEXPECTED", &*error))
}

/// Our own database is away: no attempt was made.
fn not_now(error: &(dyn std::error::Error + 'static)) -> Verdict {
    tracing::warn!(%error, "no connection for a message; it comes again");
    Verdict::Snooze(Duration::from_secs(1))
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
