//! Transports: how messages leave the outbox and reach their consumers. Traits and types only.
//!
//! Every transport promises the following, and one conformance suite checks it for all of them:
//!
//! - **Confirmed means stored.** [`Published::Confirmed`] is returned after the transport itself has confirmed.
//! - **At least once.** A delivery that wasn't settled is delivered again, possibly to another consumer. The message's
//!   id is created in the business transaction and never changes, so that a duplicate can be recognised.
//! - **Order per key.** Within a group and a topic, messages of one key arrive one after the other, in the order in
//!   which they were published. A message that waits for its next attempt delays its own key only.
//! - **Bounded.** A consumer holds at most its prefetch; a message that always fails is a dead letter after a bounded
//!   number of attempts.
//! - **Nothing is dropped.** A message to a topic without a subscription is [`Published::Unroutable`] and stays with
//!   the sender. Subscriptions are durable: a consumer that starts late finds what came meanwhile.
//!
//! Configuration chooses the transport, so the traits are used as `dyn`.

mod consumer;
mod message;
mod subscriber;
mod subscription;
mod table;

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{PgConnection, PgPool};

pub use consumer::{Consumer, Delivery, Fate, Receipt};
pub use message::{Message, MessageId, Origin};
pub use subscriber::{BatchHandler, BatchOutcome, MessageHandler, Subscriber};
pub use subscription::Subscription;
pub use table::DELIVERIES;

use crate::failure::Failure;

/// The transport's answer for one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The transport has stored it, now or at an earlier attempt.
    Confirmed,
    /// Nobody subscribed to its topic; nothing was stored.
    Unroutable,
    /// The transport rejected this message.
    Failed(Failure),
    /// The transport is unavailable; this says nothing about the message.
    Unavailable(Failure),
}

/// What a transport may move from the outbox by itself.
#[derive(Debug, Clone)]
pub struct Relay {
    /// Creates the messages' ids.
    pub origin: Origin,
    /// Topics with a handler of their own, which aren't moved.
    pub except: Vec<String>,
    /// Name of the mover, for the record.
    pub worker: String,
    /// How long one call may take.
    pub turn: Duration,
}

/// Errors of a transport.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// It is unavailable; the same call may succeed later.
    #[error("the {transport} transport is unavailable; nothing is lost, retry later: {source}")]
    Unavailable {
        /// The transport.
        transport: &'static str,
        /// What it or the network reported.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It rejected the call; repeating won't help.
    #[error("the {transport} transport rejected the call: {source}")]
    Rejected {
        /// The transport.
        transport: &'static str,
        /// What it reported.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The delivery went to another consumer: roll back, it will be redelivered.
    #[error("the delivery went to another consumer: roll back, it is redelivered")]
    Lost,
    /// This transport can't settle in a database transaction: use the inbox.
    #[error(
        "the {0} transport shares no transaction with this database: use the inbox and settle after the commit"
    )]
    NotShared(&'static str),
    /// The consumer was closed.
    #[error("the consumer is closed")]
    Closed,
}

impl TransportError {
    /// Whether the same call may succeed a little later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Rejected { .. } | Self::Lost | Self::NotShared(_) | Self::Closed => false,
        }
    }

    /// Classifies an error of the library on behalf of this transport.
    #[must_use]
    pub fn from_error(transport: &'static str, error: crate::Error) -> Self {
        let transient = error.is_transient();
        let source = Box::new(error);
        if transient {
            Self::Unavailable { transport, source }
        } else {
            Self::Rejected { transport, source }
        }
    }
}

/// Moves messages from publishers to subscribers.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Name in configuration, metrics and logs, e.g. `postgres`.
    fn name(&self) -> &'static str;

    /// Publishes a batch and waits for the transport's own confirmations; one answer per message, in their order.
    ///
    /// Messages of one key are stored in the order given.
    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>>;

    /// Publishes in the caller's transaction: the answers hold if that transaction commits.
    ///
    /// Only for a transport in the same database; others return [`TransportError::NotShared`].
    fn publish_in<'a>(
        &'a self,
        _transaction: &'a mut PgConnection,
        _batch: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Published>, TransportError>> {
        let name = self.name();
        Box::pin(async move { Err(TransportError::NotShared(name)) })
    }

    /// Whether the transport lives in the database of this pool.
    fn shares<'a>(&'a self, _pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>> {
        Box::pin(async { Ok(false) })
    }

    /// Moves messages that wait in the outbox of its own database to their subscribers, in one statement and without
    /// leases; returns their number. Only for a transport that shares that database, see [`Transport::shares`]; others
    /// move none.
    fn relay<'a>(&'a self, _order: &'a Relay) -> BoxFuture<'a, crate::Result<u64>> {
        Box::pin(async { Ok(0) })
    }

    /// Makes the subscription durable if it is new, without consuming anything.
    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Creates a consumer of this group; its topics are declared first.
    fn subscribe<'a>(
        &'a self,
        subscription: Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Consumer>, TransportError>>;
}
