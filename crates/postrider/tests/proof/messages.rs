//! Messages through the Postgres transport to four groups. Two handle messages one by one, two in batches; one of each
//! acknowledges in the transaction of its effect, the other is made to believe that deliveries live in another database
//! and uses the inbox.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::RetryPolicy;
use postrider::inbox::Inbox;
use postrider::transport::{
    BatchHandler, BatchOutcome, Consumer, Delivery, Fate, Message, MessageHandler, Published,
    Receipt, Subscriber, Subscription, Transport, TransportError,
};
use postrider::{BoxError, Verdict};
use postrider_transports::PostgresTransport;
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::work::{Task, write};

/// The topic.
pub const MESSAGE: &str = "proof.message";
/// The groups; each has one effect per message, logged under its name.
pub const GROUPS: [&str; 4] = ["shared", "apart", "batch_shared", "batch_apart"];

const MAX_BATCH: usize = 8;

/// Works for all groups until `stop`.
pub async fn consume(
    transport: Arc<PostgresTransport>,
    pool: PgPool,
    policy: RetryPolicy,
    lease: Duration,
    stop: CancellationToken,
) -> Result<(), TransportError> {
    let subscription = |group: &'static str| -> Result<Subscription, TransportError> {
        Ok(Subscription::new(group, [MESSAGE])
            .map_err(|error| TransportError::from_error("postgres", error))?
            .lease(lease)
            .policy(policy.clone()))
    };
    let one_by_one = |transport: Arc<dyn Transport>, group: &'static str| {
        let handle: Arc<MessageHandler> = Arc::new(
            move |tx, message| -> BoxFuture<'_, Result<Verdict, BoxError>> {
                Box::pin(async move {
                    let task: Task = message.read()?;
                    tokio::time::sleep(Duration::from_millis(task.millis)).await;
                    write(tx, &task.key, group, 0, 0).await?;
                    Ok(Verdict::Done)
                })
            },
        );
        let subscriber = Subscriber::new(transport, subscription(group)?, pool.clone(), handle);
        Ok::<_, TransportError>(subscriber.concurrency(2))
    };
    let in_batches = |transport: Arc<dyn Transport>, group: &'static str| {
        let handler = Batches {
            pool: pool.clone(),
            inbox: Inbox::new(group)
                .map_err(|error| TransportError::from_error("postgres", error))?,
            group,
        };
        let (subscription, pool) = (subscription(group)?, pool.clone());
        Ok::<_, TransportError>(Subscriber::batch(
            transport,
            subscription,
            pool,
            MAX_BATCH,
            Arc::new(handler),
        ))
    };
    let apart: Arc<dyn Transport> = Arc::new(Apart(Arc::clone(&transport)));
    let [shared, other, batch_shared, batch_apart] = [
        one_by_one(Arc::clone(&transport) as _, GROUPS[0])?,
        one_by_one(Arc::clone(&apart), GROUPS[1])?,
        in_batches(transport as _, GROUPS[2])?,
        in_batches(apart, GROUPS[3])?,
    ];
    tokio::try_join!(
        shared.run(stop.clone()),
        other.run(stop.clone()),
        batch_shared.run(stop.clone()),
        batch_apart.run(stop),
    )
    .map(drop)
}

/// Writes the effects of a batch in one transaction; the inbox recognises what is redelivered.
struct Batches {
    pool: PgPool,
    inbox: Inbox,
    group: &'static str,
}

impl Batches {
    async fn write(&self, batch: &[Delivery]) -> Result<BatchOutcome, BoxError> {
        let mut tasks = Vec::with_capacity(batch.len());
        for delivery in batch {
            tasks.push(delivery.message.read::<Task>()?);
        }
        let slowest = tasks.iter().map(|task| task.millis).max();
        tokio::time::sleep(Duration::from_millis(slowest.unwrap_or_default())).await;
        let ids: Vec<String> = batch.iter().map(|one| one.message.id.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut tx = self.pool.begin().await?;
        let first = self.inbox.first_times(&mut tx, &ids).await?;
        for (task, _) in tasks.iter().zip(first).filter(|(_, first)| *first) {
            write(&mut tx, &task.key, self.group, 0, 0).await?;
        }
        Ok(BatchOutcome::from(vec![Verdict::Done; batch.len()]).in_transaction(tx))
    }
}

impl BatchHandler for Batches {
    fn handle<'a>(
        &'a self,
        batch: &'a [Delivery],
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(self.write(batch))
    }
}

/// The same transport, as if it were in another database.
#[derive(Debug)]
struct Apart(Arc<PostgresTransport>);

#[derive(Debug)]
struct ApartConsumer(Box<dyn Consumer>);

impl Transport for Apart {
    fn name(&self) -> &'static str {
        "apart"
    }

    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>> {
        self.0.publish(batch)
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.0.declare(topic, group)
    }

    fn subscribe<'a>(
        &'a self,
        subscription: Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Consumer>, TransportError>> {
        Box::pin(async move {
            let consumer = self.0.subscribe(subscription).await?;
            Ok(Box::new(ApartConsumer(consumer)) as Box<dyn Consumer>)
        })
    }
}

impl Consumer for ApartConsumer {
    fn receive(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        self.0.receive(max, wait)
    }

    fn settle(
        &self,
        batch: Vec<(Receipt, Verdict)>,
    ) -> BoxFuture<'_, Result<Vec<Fate>, TransportError>> {
        self.0.settle(batch)
    }

    fn settle_in<'a>(
        &'a self,
        _transaction: &'a mut PgConnection,
        _receipts: Vec<Receipt>,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { Err(TransportError::NotShared("apart")) })
    }

    fn shares<'a>(&'a self, _pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>> {
        Box::pin(async { Ok(false) })
    }

    fn held(&self) -> usize {
        self.0.held()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        self.0.close()
    }
}
