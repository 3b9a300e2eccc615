//! Attach events become tasks.
//!
//! Nothing is decided here: an event is only written down, so that its row gets a worker with a lease of its own. Which
//! artifacts are acted on is decided when the work begins.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider::{
    Error,
    failure::{Category, Failure},
    runtime::Verdict,
    transport::{Message, Subscription, Transport},
    wake::Waker,
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{
    ATTACH_TASKS,
    consume::consume,
    events::{AttachEvent, REQUESTS, RETRIES, SCHEMA_VERSION},
    store::attach,
};

/// The consumer group of attach events.
pub const GROUP: &str = "evidence.attach";

/// Events per round trip.
const BATCH: usize = 200;

/// Writes events down as they come, until the stop.
pub async fn run(
    pool: PgPool,
    transport: Arc<dyn Transport>,
    lease: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let subscription = Subscription::new(GROUP, [REQUESTS, RETRIES])?
        .prefetch(2 * BATCH)
        .lease(lease);
    let waker = Waker::new(pool.clone());
    let work = move |messages: Vec<Message>| {
        let (pool, waker) = (pool.clone(), waker.clone());
        async move {
            let verdicts = arm(&pool, &messages).await?;
            waker.wake(&ATTACH_TASKS);
            Ok(verdicts)
        }
        .boxed()
    };
    consume(transport, subscription, BATCH, Arc::new(work), stop).await
}

/// Makes a task of each event that can be read; what can't is a dead letter.
pub async fn arm(pool: &PgPool, messages: &[Message]) -> Result<Vec<Verdict>, Error> {
    let mut events = Vec::with_capacity(messages.len());
    let mut verdicts = Vec::with_capacity(messages.len());
    for message in messages {
        verdicts.push(match read(message) {
            Ok(event) => {
                events.push(event);
                Verdict::Done
            }
            Err(failure) => {
                tracing::error!(%failure, message = %message.id, topic = &*message.topic, "an attach event can't be read");
                Verdict::Dead(failure)
            }
        });
    }
    if !events.is_empty() {
        attach::arm(pool, &events).await?;
    }
    postrider_crashpoint::point!("evidence.armed")?;
    Ok(verdicts)
}

fn read(message: &Message) -> Result<AttachEvent, Failure> {
    let event: AttachEvent = message.read()?;
    if event.schema_version != SCHEMA_VERSION {
        let message = format!(
            "schema_version {} is not known here; {SCHEMA_VERSION} is",
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
