//! Transports: how messages leave the outbox and reach their consumers. The traits and their types only.
//!
//! The promise that every transport keeps, and that one conformance suite proves for all of them:
//!
//! - **Confirmed means stored.** [`Published::Confirmed`] is said when the transport itself has confirmed, never before.
//! - **At least once.** A delivery that was not settled is delivered again, to another consumer if need be. The
//!   message's id is minted with the business transaction and never changes, so that a duplicate can be recognised.
//! - **Order per key.** Within a group and a topic, messages of one key come one after the other, in the order in
//!   which they were published; a message that waits for its next attempt holds back its own key and nothing else.
//! - **Bounded.** A consumer holds at most its prefetch; a message that always fails is a dead letter after bounded attempts.
//! - **Nothing falls on the floor.** A message to a topic that nobody subscribed to is [`Published::Unroutable`] and stays
//!   with the sender. Subscriptions are durable: who starts late finds what came meanwhile.
//!
//! Which transport is used is a matter of configuration, hence the traits are used as `dyn`.

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

/// What became of one message that was handed to a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The transport has stored it, now or at an earlier attempt.
    Confirmed,
    /// Nobody subscribed to its topic; nothing was stored.
    Unroutable,
    /// The transport refused this message, or has trouble with it alone.
    Failed(Failure),
    /// The transport can't be reached or takes nothing at present; says nothing about the message.
    Unavailable(Failure),
}

/// What a transport may move from the outbox by itself.
#[derive(Debug, Clone)]
pub struct Relay {
    /// Mints the messages' ids.
    pub origin: Origin,
    /// Topics that somebody else handles.
    pub except: Vec<String>,
    /// Who moves them, for the record.
    pub worker: String,
    /// How long it may go on.
    pub turn: Duration,
}

/// Why a transport could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// It can't be reached; the same call may succeed later.
    #[error(
        "the {transport} transport can't be reached; nothing is lost, try again later: {source}"
    )]
    Unavailable {
        /// Which transport.
        transport: &'static str,
        /// What it or the network said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It refuses; repeating won't help.
    #[error("the {transport} transport refuses: {source}")]
    Refused {
        /// Which transport.
        transport: &'static str,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The delivery is no longer this consumer's: roll the transaction back, it will be delivered again.
    #[error("the delivery went to another consumer meanwhile: roll back, it is delivered again")]
    Lost,
    /// This transport can't settle in a database transaction: use the inbox.
    #[error(
        "the {0} transport shares no transaction with this database: use the inbox and settle after the commit"
    )]
    NotShared(&'static str),
    /// The consumer was closed.
    #[error("the consumer is closed; it delivers no more")]
    Closed,
}

impl TransportError {
    /// May the same call succeed a little later?
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Refused { .. } | Self::Lost | Self::NotShared(_) | Self::Closed => false,
        }
    }

    /// What an engine call on behalf of this transport says about it.
    #[must_use]
    pub fn of_engine(transport: &'static str, error: crate::Error) -> Self {
        let transient = error.is_transient();
        let source = Box::new(error);
        if transient {
            Self::Unavailable { transport, source }
        } else {
            Self::Refused { transport, source }
        }
    }
}

/// Moves messages from those who publish to those who subscribed.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Its name in configuration, metrics and logs, e.g. `postgres`.
    fn name(&self) -> &'static str;

    /// Publishes a batch and waits for the transport's own confirmations; one answer per message, in their order.
    ///
    /// Messages of one key are stored in the order given.
    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>>;

    /// Publishes in the caller's transaction: what is answered holds if that transaction commits.
    ///
    /// Only for a transport that lives in the same database; others answer [`TransportError::NotShared`].
    fn publish_in<'a>(
        &'a self,
        _transaction: &'a mut PgConnection,
        _batch: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Published>, TransportError>> {
        let name = self.name();
        Box::pin(async move { Err(TransportError::NotShared(name)) })
    }

    /// Does it live in the very database that this pool leads to?
    fn shares<'a>(&'a self, _pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>> {
        Box::pin(async { Ok(false) })
    }

    /// Moves messages that wait in the outbox of its own database to their subscribers, in one statement and without
    /// leases; says how many. Only for a transport that shares that database, see [`Transport::shares`]; others move none.
    fn relay<'a>(&'a self, _order: &'a Relay) -> BoxFuture<'a, crate::Result<u64>> {
        Box::pin(async { Ok(0) })
    }

    /// Makes the subscription durable if it is new, without consuming anything.
    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// A consumer of this group; its topics are declared first.
    fn subscribe<'a>(
        &'a self,
        subscription: Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Consumer>, TransportError>>;
}
