//! What all transports through a broker outside share.
//!
//! Publishing goes straight to the broker. Consuming goes through the consumer's own database: an *intake* takes messages from the
//! broker in its order, stores them for the group (each once, by its id), and acknowledges them after that commit. From
//! there they are deliveries like those of the Postgres transport, with the same leases, retries, order per key and
//! dead letters. So the broker is never held up by a message that fails, waits or kills, no matter for how long; a retry may
//! be due in an hour without a partition, a queue or an acknowledgement deadline standing in its way; and operators find
//! every dead letter in one place. `docs/decisions` has the reasons.
//!
//! What a broker must bring is small: [`Broker`] publishes and declares, [`Source`] reads in order.

mod consumer;
mod envelope;
mod intake;
mod names;
mod waves;

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

#[cfg(any(feature = "nats", feature = "rabbitmq"))]
pub(crate) use envelope::KEY;
pub(crate) use envelope::{Arrival, ID, fields};
pub(crate) use names::{hash, plain};

/// Any error of a client library.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A broker, as far as publishing and declaring go. It may be away: every call says so and tries anew.
pub(crate) trait Broker: Send + Sync + fmt::Debug {
    /// Its name in configuration and metrics.
    fn name(&self) -> &'static str;

    /// Publishes messages of which no two have the same topic and key, and waits for the broker's confirmations.
    fn publish<'a>(&'a self, batch: Vec<&'a Message>) -> BoxFuture<'a, Vec<Published>>;

    /// Makes the subscription durable at the broker: from now on, what comes to the topic waits for the group. These other
    /// groups may have subscribed before; never called twice at once for one topic and group.
    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
        others: &'a [String],
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Where this group's messages of these topics come from; each source keeps its own order.
    fn sources(&self, group: &str, topics: &[String]) -> Vec<Box<dyn Source>>;
}

/// Messages of a group in the broker's order. A source that lost its connection makes a new one at the next call.
pub(crate) trait Source: Send + Sync {
    /// The next messages, in order; none after this wait. Those of the fetch before are stored; if they could not be
    /// acknowledged they may come again.
    fn fetch(&mut self, wait: Duration) -> BoxFuture<'_, Result<Vec<Message>, TransportError>>;

    /// All that was fetched last is ours now.
    fn acknowledge(&mut self) -> BoxFuture<'_, Result<(), TransportError>>;

    /// Nothing is wanted for this long; the broker must not take us for dead.
    fn rest(&mut self, how_long: Duration) -> BoxFuture<'_, ()>;
}

/// How messages are brought to and from the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Declare topics, exchanges, queues and streams that are missing. Otherwise somebody else must.
    pub declare: bool,
    /// So many messages of a group wait in the database at most; then the broker keeps the rest until half are handled.
    pub backlog: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            declare: true,
            backlog: 10_000,
        }
    }
}

/// A transport through a broker. Cheap to clone.
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
            self.declare_among(topic, group, &known).await?;
        }
        // Also as a row: who subscribed is known in one place, whatever the transport.
        Transport::declare(&self.local, topic, group).await
    }

    async fn declare_among(
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
        // Held while the broker is called, which nothing but another declaration of the same pair waits for.
        let lock = self.local.declaring(topic, group).await;
        let lock = lock.map_err(|error| self.trouble(error))?;
        let declared = self.broker.declare(topic, group, &others).await;
        // What is not rolled back now is when the connection is used again.
        let _ = lock.rollback().await;
        declared
    }

    /// Who subscribed to these topics, as far as this database knows.
    async fn known(&self, topics: &[&str]) -> Result<Vec<(String, String)>, TransportError> {
        let known = self.local.subscriptions(topics).await;
        known.map_err(|error| self.trouble(error))
    }

    fn trouble(&self, error: sqlx::Error) -> TransportError {
        TransportError::of_engine(self.broker.name(), Error::Database(error))
    }

    /// Brings subscriptions that are rows of this database (a service's migrations make them) to the broker. True if
    /// there are any for these topics.
    async fn announce(&self, topics: &[&str]) -> Result<bool, TransportError> {
        let known = self.known(topics).await?;
        for (topic, group) in &known {
            self.declare_among(topic, group, &known).await?;
        }
        Ok(!known.is_empty())
    }

    /// A topic that the broker does not know may be one whose subscriptions it has not heard of yet.
    async fn publish(&self, batch: &[Message]) -> Vec<Published> {
        let mut answers = waves::publish(&*self.broker, batch).await;
        let unroutable: Vec<usize> = (0..answers.len())
            .filter(|place| answers[*place] == Published::Unroutable)
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
                let failure = away(self.broker.name(), &error);
                for place in unroutable {
                    answers[place] = Published::Unavailable(failure.clone());
                }
                return answers;
            }
        }
        // Whatever was held back behind an unroutable message goes with it, in the same order.
        let again: Vec<usize> = (0..answers.len())
            .filter(|place| {
                answers[*place] == Published::Unroutable || waves::waits(&answers[*place])
            })
            .collect();
        let messages: Vec<Message> = again.iter().map(|place| batch[*place].clone()).collect();
        for (place, answer) in again
            .iter()
            .zip(waves::publish(&*self.broker, &messages).await)
        {
            answers[*place] = answer;
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

    /// Publishing is not in the database; deliveries are, which a consumer says itself.
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

/// The broker can't be reached, or takes nothing just now.
pub(crate) fn away(broker: &str, error: &dyn fmt::Display) -> Failure {
    let code = format!("{}_UNAVAILABLE", broker.to_ascii_uppercase());
    Failure::with_category(&code, Category::Network, error)
}

/// The broker will never take this message.
pub(crate) fn refused(broker: &str, error: &dyn fmt::Display) -> Failure {
    let code = format!("{}_REFUSED", broker.to_ascii_uppercase());
    Failure::with_category(&code, Category::Data, error)
}
