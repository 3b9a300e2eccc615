//! The Postgres transport: a log, and deliveries that are leased like every other work.
//!
//! Publishing writes the message once to `postrider.message` and one slim row per subscribed group to
//! `postrider.delivery`, in one statement per batch. Consumers claim, renew and settle deliveries with the engine's own
//! leases, hence with its fences, retries, losses and dead letters. Where outbox, log and the consumer's effect live in
//! one database, each of them can share a transaction with the other.

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
use postrider::wake::{Hints, Waker};
use postrider::{Error, Result};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};

pub use log::{From, Kept, Retention};

use consumer::PostgresConsumer;

/// The transport's name in configuration and metrics.
pub const NAME: &str = "postgres";

const SUBSCRIBE: &str = "select postrider.subscribe($1, $2)";
const UNSUBSCRIBE: &str = "select postrider.unsubscribe($1, $2)";

/// Messages through a PostgreSQL database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PostgresTransport {
    pool: PgPool,
    /// Connections that nobody's handlers can use up: for hints and renewals.
    side: PgPool,
    queue: Queue,
    waker: Waker,
    hints: Hints,
}

impl PostgresTransport {
    /// A transport through the database of this pool, which must have the engine's schema. Call it inside a tokio runtime;
    /// it connects when it is first used.
    pub fn new(pool: PgPool) -> Result<Self> {
        let side = PgPoolOptions::new()
            .max_connections(3)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(pool.connect_options().as_ref().clone());
        Ok(Self {
            queue: Queue::new(&DELIVERIES)?,
            waker: Waker::new(pool.clone()),
            hints: Hints::of(side.clone()),
            pool,
            side,
        })
    }

    /// Ends a subscription: the group gets no more of this topic. What it has not handled yet stays.
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
            .map_err(trouble)?;
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
                .map_err(trouble)
        })
    }

    fn shares<'a>(&'a self, pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>> {
        Box::pin(async move { same_database(&self.side, pool).await.map_err(trouble) })
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

/// What a database error says about this transport.
fn trouble(error: impl Into<Error>) -> TransportError {
    TransportError::of_engine(NAME, error.into())
}

/// Do two pools lead to one database? A lock that one holds is either seen by the other or not: this can't be fooled by
/// names, copies or poolers.
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
