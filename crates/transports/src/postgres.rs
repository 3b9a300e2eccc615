//! The Postgres transport: a message log, and deliveries that are leased like any other work item.
//!
//! Publishing writes the message once to `postrider.message` and one small row per subscribed group to
//! `postrider.delivery`, in one statement per batch. Consumers claim, renew and settle deliveries with Postrider's leases, and
//! so get its fences, retries, rescues and dead letters. If the outbox, the log and the consumer's effects are in one
//! database, they can share a transaction.

mod consumer;
mod envelope;
mod heartbeat;
#[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "nats"))]
mod ingest;
mod log;
mod publish;
mod receive;
mod relay;
mod settle;

use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::lease::Queue;
use postrider::transport::{
    Consumer, DELIVERIES, Message, Published, Relay, Subscription, Transport, TransportError,
};
use postrider::{Error, Result};
use postrider::{internal::Hints, wake::Waker};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};

pub use log::{ReplayFrom, Retained, Retention};

use consumer::PostgresConsumer;

/// The transport's name in configuration and metrics.
pub const NAME: &str = "postgres";

const SUBSCRIBE: &str = "select postrider.subscribe($1, $2)";
const UNSUBSCRIBE: &str = "select postrider.unsubscribe($1, $2)";

/// Messages through a PostgreSQL database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PostgresTransport {
    pool: PgPool,
    /// Connections that handlers can't exhaust, for wake-up notifications and renewals.
    reserved: PgPool,
    queue: Queue,
    waker: Waker,
    hints: Hints,
}

impl PostgresTransport {
    /// A transport over the database of this pool, which must have Postrider's schema. Call it inside a Tokio runtime. It
    /// connects at the first use.
    pub fn new(pool: PgPool) -> Result<Self> {
        let reserved = PgPoolOptions::new()
            .max_connections(3)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(pool.connect_options().as_ref().clone());
        Ok(Self {
            queue: Queue::new(&DELIVERIES)?,
            waker: Waker::new(pool.clone()),
            hints: Hints::new(reserved.clone()),
            pool,
            reserved,
        })
    }

    /// Ends a subscription: the group gets no new messages of this topic. Unfinished deliveries stay. False if there was none.
    pub async fn unsubscribe(&self, topic: &str, group: &str) -> Result<bool> {
        Ok(sqlx::query_scalar(UNSUBSCRIBE)
            .bind(topic)
            .bind(group)
            .fetch_one(&self.pool)
            .await?)
    }

    async fn declare(&self, topic: &str, group: &str) -> Result<(), TransportError> {
        sqlx::query(SUBSCRIBE)
            .bind(topic)
            .bind(group)
            .execute(&self.pool)
            .await
            .map_err(transport_error)?;
        Ok(())
    }
}

impl Transport for PostgresTransport {
    fn name(&self) -> &'static str {
        NAME
    }

    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(async move {
            let answers = publish::publish(&self.pool, batch).await;
            if answers.contains(&Published::Confirmed) {
                self.waker.wake(&DELIVERIES);
            }
            answers
        })
    }

    fn publish_in<'a>(
        &'a self,
        transaction: &'a mut PgConnection,
        batch: &'a [Message],
    ) -> BoxFuture<'a, Result<Vec<Published>, TransportError>> {
        Box::pin(async move {
            publish::publish_in(transaction, batch)
                .await
                .map_err(transport_error)
        })
    }

    fn shares<'a>(&'a self, pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>> {
        Box::pin(async move {
            same_database(&self.reserved, pool)
                .await
                .map_err(transport_error)
        })
    }

    fn relay<'a>(&'a self, order: &'a Relay) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let moved = relay::relay(&self.pool, order).await?;
            if moved > 0 {
                self.waker.wake(&DELIVERIES);
            }
            Ok(moved)
        })
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
            for topic in subscription.topics() {
                self.declare(topic, subscription.group()).await?;
            }
            let consumer: Box<dyn Consumer> =
                Box::new(PostgresConsumer::start(self.clone(), subscription));
            Ok(consumer)
        })
    }
}

/// A database error as the transport's.
fn transport_error(error: impl Into<Error>) -> TransportError {
    TransportError::from_error(NAME, error.into())
}

/// Do two pools connect to the same database? One sees the other's lock or doesn't, which names, copies and poolers can't
/// falsify.
async fn same_database(ours: &PgPool, theirs: &PgPool) -> Result<bool, sqlx::Error> {
    let key: i64 = rand::random();
    let mut tx = ours.begin().await?;
    sqlx::query("select pg_advisory_xact_lock($1)")
        .bind(key)
        .execute(&mut *tx)
        .await?;
    let free: bool = sqlx::query_scalar("select pg_try_advisory_xact_lock($1)")
        .bind(key)
        .fetch_one(theirs)
        .await?;
    tx.rollback().await?;
    Ok(!free)
}
