//! Messages through the Postgres transport to two groups: one settles with its effect in one transaction, the other one
//! is made to believe that its database is elsewhere and has the inbox.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::RetryPolicy;
use postrider::transport::{
    Consumer, Delivery, Fate, Message, MessageHandler, Published, Receipt, Subscriber,
    Subscription, Transport, TransportError,
};
use postrider::{BoxError, Verdict};
use postrider_transports::PostgresTransport;
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::work::{Task, write};

/// The topic.
pub const MESSAGE: &str = "proof.message";
/// The groups; each has one effect per message, logged under its name.
pub const GROUPS: [&str; 2] = ["shared", "apart"];

/// Works for both groups until `stop`.
pub async fn consume(
    transport: Arc<PostgresTransport>,
    pool: PgPool,
    policy: RetryPolicy,
    lease: Duration,
    stop: CancellationToken,
) -> Result<(), TransportError> {
    let subscriber = |transport: Arc<dyn Transport>, group: &'static str| {
        let subscription = Subscription::new(group, [MESSAGE])
            .map_err(|error| TransportError::from_error("postgres", error))?
            .lease(lease)
            .policy(policy.clone());
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
        Ok(Subscriber::new(transport, subscription, pool.clone(), handle).concurrency(2))
    };
    let shared = subscriber(Arc::clone(&transport) as _, GROUPS[0])?;
    let apart = subscriber(Arc::new(Apart(transport)), GROUPS[1])?;
    tokio::try_join!(shared.run(stop.clone()), apart.run(stop)).map(drop)
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
