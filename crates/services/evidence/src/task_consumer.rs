//! Consumes attach events: each becomes a task.
//!
//! Nothing is decided here. An event is only stored, so that its row gets a worker with a lease of its own; which
//! artifacts to act on is decided when the work begins. An event that comes twice makes a task that finds nothing to do.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    BoxError, Error, Verdict,
    failure::{Category, Failure},
    transport::{
        BatchHandler, BatchOutcome, Delivery, Message, Subscriber, Subscription, Transport,
    },
    wake::Waker,
};
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::{
    ATTACH_TASKS,
    events::{AttachEvent, REQUESTS, RETRIES, SCHEMA_VERSION},
    store::attach,
};

/// The consumer group of attach events.
pub const GROUP: &str = "evidence.attach";

const MAX_BATCH: usize = 200;

/// Consumes attach events until `stop`.
pub async fn run(
    pool: PgPool,
    transport: Arc<dyn Transport>,
    lease: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let subscription = Subscription::new(GROUP, [REQUESTS, RETRIES])?
        .prefetch(2 * MAX_BATCH)
        .lease(lease);
    let handler = Arc::new(TaskConsumer {
        pool: pool.clone(),
        waker: Waker::new(pool.clone()),
    });
    let subscriber = Subscriber::batch(transport, subscription, pool, MAX_BATCH, handler);
    Ok(subscriber.run(stop).await?)
}

struct TaskConsumer {
    pool: PgPool,
    waker: Waker,
}

impl BatchHandler for TaskConsumer {
    fn handle<'a>(
        &'a self,
        batch: &'a [Delivery],
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(async move {
            let mut tx = self.pool.begin().await?;
            let messages = batch.iter().map(|delivery| &delivery.message);
            let verdicts = create_tasks(&mut tx, messages).await?;
            let waker = self.waker.clone();
            Ok(BatchOutcome::from(verdicts)
                .in_transaction(tx)
                .after_commit(async move { waker.wake(&ATTACH_TASKS) }))
        })
    }
}

/// Creates a task for each event that can be read; any other message is a dead letter.
pub async fn create_tasks(
    tx: &mut PgConnection,
    messages: impl IntoIterator<Item = &Message>,
) -> Result<Vec<Verdict>, Error> {
    let mut events = Vec::new();
    let mut verdicts = Vec::new();
    for message in messages {
        verdicts.push(match read(message) {
            Ok(event) => {
                events.push(event);
                Verdict::Done
            }
            Err(failure) => {
                tracing::error!(%failure, message = %message.id, topic = &*message.topic, "unreadable attach event; it becomes a dead letter");
                Verdict::Dead(failure)
            }
        });
    }
    if !events.is_empty() {
        attach::create_tasks(tx, &events).await?;
    }
    postrider_crashpoint::point!("evidence.tasks_created")?;
    Ok(verdicts)
}

fn read(message: &Message) -> Result<AttachEvent, Failure> {
    let event: AttachEvent = message.read()?;
    if event.schema_version != SCHEMA_VERSION {
        let message = format!(
            "schema_version {} is not supported; expected {SCHEMA_VERSION}",
            event.schema_version
        );
        return Err(Failure::with_category(
            "UNKNOWN_SCHEMA_VERSION",
            Category::Data,
            message,
        ));
    }
    Ok(event)
}
