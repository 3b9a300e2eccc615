//! What all transports over a message broker share.
//!
//! Publishing goes straight to the broker. Consuming goes through the consumer's own database: an *intake* reads messages from
//! the broker in order, stores them for the group (each once, by its id), and acknowledges them after that commit. From there
//! they are deliveries like those of the Postgres transport, with the same leases, retries, order per key and dead
//! letters. So a message that fails, waits or crashes its worker never blocks the broker, however long that takes; a retry
//! can be due in an hour without occupying a partition, a queue or an acknowledgement deadline; and operators find every
//! dead letter in one place. `docs/decisions` has the reasons.
//!
//! A broker implements little: `Broker` publishes and declares, `Source` reads in order.
//!
//! Declaring and subscribing retry transient broker errors (a node that restarts, a coordinator that moves, an election) with
//! backoff for up to [`Options::declare_timeout`]. Permanent errors (authorization, configuration) fail at once.

mod backoff;
mod consumer;
mod envelope;
mod intake;
mod key_order;
mod names;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::Error;
use postrider::failure::{Category, Failure};
use postrider::transport::{Consumer, Message, Published, Subscription, Transport, TransportError};
use sqlx::PgPool;

use crate::PostgresTransport;
use consumer::BrokerConsumer;

pub(crate) use backoff::Backoff;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
pub(crate) use envelope::KEY;
pub(crate) use envelope::{ID, Incoming, encode_headers};
pub(crate) use names::{sanitize, stable_id};

/// Any error of a client library.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The publishing and declaring side of a broker. Every call reconnects if the connection is lost.
pub(crate) trait Broker: Send + Sync + fmt::Debug {
    /// Its name in configuration and metrics.
    fn name(&self) -> &'static str;

    /// Publishes messages, no two of which share a topic and key, and waits for the broker's confirmations.
    fn publish<'a>(&'a self, batch: Vec<&'a Message>) -> BoxFuture<'a, Vec<Published>>;

    /// Makes the subscription durable at the broker: from now on, the broker keeps the topic's messages for the group.
    /// `others` are groups that may have subscribed earlier. Idempotent; never called concurrently for one topic and group.
    ///
    /// A single attempt with a bounded duration: the caller retries transient errors.
    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
        others: &'a [String],
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// The sources of this group's messages of these topics; each source keeps its own order.
    fn sources(&self, group: &str, topics: &[String]) -> Vec<Box<dyn Source>>;
}

/// Messages of a group in the broker's order. A source that lost its connection reconnects at the next call.
pub(crate) trait Source: Send + Sync {
    /// The next messages, in order; empty if none come within `wait`. The messages of the previous fetch are stored; if they
    /// could not be acknowledged they may come again.
    fn fetch(&mut self, wait: Duration) -> BoxFuture<'_, Result<Vec<Message>, TransportError>>;

    /// Acknowledges everything that the last fetch returned.
    fn acknowledge(&mut self) -> BoxFuture<'_, Result<(), TransportError>>;

    /// Fetches nothing for this long, while staying alive in the broker's eyes.
    fn pause(&mut self, duration: Duration) -> BoxFuture<'_, ()>;
}

/// How a broker transport declares and buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Create missing topics, exchanges, queues and streams. If false, they must exist already.
    pub declare: bool,
    /// How long declaring and subscribing retry transient broker errors.
    pub declare_timeout: Duration,
    /// Maximum number of a group's unfinished messages in the database. Above it, the broker keeps the rest until half of
    /// them are handled.
    pub backlog: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            declare: true,
            declare_timeout: Duration::from_secs(30),
            backlog: 10_000,
        }
    }
}

/// A transport over a broker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BrokerTransport {
    broker: Arc<dyn Broker>,
    local: PostgresTransport,
    options: Options,
}

impl BrokerTransport {
    pub(crate) fn new(
        broker: impl Broker + 'static,
        local: PostgresTransport,
        options: Options,
    ) -> Self {
        Self {
            broker: Arc::new(broker),
            local,
            options,
        }
    }

    async fn declare(&self, topic: &str, group: &str) -> Result<(), TransportError> {
        if self.options.declare {
            let known = self.known(&[topic]).await?;
            let mut backoff = Backoff::within(self.options.declare_timeout);
            while let Err(error) = self.declare_once(topic, group, &known).await {
                if !error.is_transient() || !backoff.wait().await {
                    return Err(error);
                }
                tracing::info!(%error, topic, group, broker = self.broker.name(), "subscribing met a transient error; retrying");
            }
        }
        // Also as a row, so that one table lists all subscriptions of every transport.
        Transport::declare(&self.local, topic, group).await
    }

    async fn declare_once(
        &self,
        topic: &str,
        group: &str,
        known: &[(String, String)],
    ) -> Result<(), TransportError> {
        let others: Vec<String> = known
            .iter()
            .filter(|(of, other)| of == topic && other != group)
            .map(|(_, other)| other.clone())
            .collect();
        // Held during the broker call. Only another declaration of the same pair waits for it.
        let lock = self.local.lock_declaration(topic, group).await;
        let lock = lock.map_err(|error| self.database_error(error))?;
        let declared = self.broker.declare(topic, group, &others).await;
        // If this rollback fails, the connection rolls back before its next use.
        let _ = lock.rollback().await;
        declared
    }

    /// The subscriptions to these topics that this database knows.
    async fn known(&self, topics: &[&str]) -> Result<Vec<(String, String)>, TransportError> {
        let known = self.local.subscriptions(topics).await;
        known.map_err(|error| self.database_error(error))
    }

    fn database_error(&self, error: sqlx::Error) -> TransportError {
        TransportError::from_error(self.broker.name(), Error::Database(error))
    }

    /// Declares subscriptions that are rows of this database (a service's migrations insert them) at the broker. True if there
    /// are any for these topics. A single attempt: the outbox retries the batch.
    async fn announce(&self, topics: &[&str]) -> Result<bool, TransportError> {
        let known = self.known(topics).await?;
        for (topic, group) in &known {
            self.declare_once(topic, group, &known).await?;
        }
        Ok(!known.is_empty())
    }

    /// Publishes a batch. If the broker doesn't know a topic, its subscriptions may exist only in the database yet.
    async fn publish(&self, batch: &[Message]) -> Vec<Published> {
        let mut answers = key_order::publish(&*self.broker, batch).await;
        let unroutable: Vec<usize> = (0..answers.len())
            .filter(|index| answers[*index] == Published::Unroutable)
            .collect();
        if unroutable.is_empty() || !self.options.declare {
            return answers;
        }
        let mut topics: Vec<&str> = unroutable.iter().map(|n| &*batch[*n].topic).collect();
        topics.sort_unstable();
        topics.dedup();
        match self.announce(&topics).await {
            Ok(true) => {}
            Ok(false) => return answers,
            Err(error) => {
                let failure = unavailable_failure(self.broker.name(), &error);
                for index in unroutable {
                    answers[index] = Published::Unavailable(failure.clone());
                }
                return answers;
            }
        }
        // Messages that waited behind an unroutable one are published with it, in the same order.
        let again: Vec<usize> = (0..answers.len())
            .filter(|index| {
                answers[*index] == Published::Unroutable
                    || key_order::is_held_back(&answers[*index])
            })
            .collect();
        let messages: Vec<Message> = again.iter().map(|index| batch[*index].clone()).collect();
        for (index, answer) in again
            .iter()
            .zip(key_order::publish(&*self.broker, &messages).await)
        {
            answers[*index] = answer;
        }
        answers
    }
}

impl Transport for BrokerTransport {
    fn name(&self) -> &'static str {
        self.broker.name()
    }

    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(self.publish(batch))
    }

    /// Publishing is outside the database. Deliveries are inside, which the consumer reports itself.
    fn shares<'a>(&'a self, _pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>> {
        Box::pin(async { Ok(false) })
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.declare(topic, group))
    }

    fn subscribe<'a>(
        &'a self,
        subscription: Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Consumer>, TransportError>> {
        Box::pin(async move {
            let group = subscription.group().to_owned();
            for topic in subscription.topics() {
                self.declare(topic, &group).await?;
            }
            let topics = subscription.topics().to_vec();
            let local = self.local.subscribe(subscription).await?;
            let consumer: Box<dyn Consumer> = Box::new(BrokerConsumer::start(
                local,
                &self.broker,
                &self.local,
                &group,
                &topics,
                self.options,
            ));
            Ok(consumer)
        })
    }
}

/// The broker is unreachable or accepts nothing at present.
pub(crate) fn unavailable_failure(broker: &str, error: &dyn fmt::Display) -> Failure {
    let code = format!("{}_UNAVAILABLE", broker.to_ascii_uppercase());
    Failure::with_category(&code, Category::Network, error)
}

/// The broker rejects this message permanently.
#[cfg(any(feature = "kafka", feature = "nats"))]
pub(crate) fn rejected_failure(broker: &str, error: &dyn fmt::Display) -> Failure {
    let code = format!("{}_REFUSED", broker.to_ascii_uppercase());
    Failure::with_category(&code, Category::Data, error)
}

/// A client library's error as the transport's: transient, so that the same call may succeed later, or permanent.
pub(crate) fn transport_error(
    transport: &'static str,
    source: Cause,
    permanent: bool,
) -> TransportError {
    if permanent {
        TransportError::Rejected { transport, source }
    } else {
        TransportError::Unavailable { transport, source }
    }
}
