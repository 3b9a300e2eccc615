//! Messages in batches: one call for many deliveries, settled together.
//!
//! What is done with them must bear repetition, because a crash between the work and the settling brings them again.
//! Here that holds for all: an attach event that comes twice makes a task that finds nothing to do, a result is only a
//! hint to look at the job, and a notification that was delivered is known to be.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    Error,
    runtime::Verdict,
    transport::{Consumer, Message, Receipt, Subscription, Transport, TransportError},
};
use tokio_util::sync::CancellationToken;

const WAIT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One verdict per message, in their order.
pub(crate) type Work =
    dyn Fn(Vec<Message>) -> BoxFuture<'static, Result<Vec<Verdict>, Error>> + Send + Sync;

/// Consumes until the stop. A transport or a database that is away is waited for.
pub(crate) async fn consume(
    transport: Arc<dyn Transport>,
    subscription: Subscription,
    most: usize,
    work: Arc<Work>,
    stop: CancellationToken,
) -> Result<(), Error> {
    let group = subscription.group().to_owned();
    let opened = stop
        .run_until_cancelled(open(&*transport, subscription))
        .await;
    let Some(consumer) = opened.transpose().map_err(|error| refused(&error))? else {
        return Ok(());
    };
    let mut pause = FIRST_PAUSE;
    while !stop.is_cancelled() {
        let Some(step) = stop.run_until_cancelled(consumer.receive(most, WAIT)).await else {
            break;
        };
        let trouble = match step {
            Ok(deliveries) if deliveries.is_empty() => continue,
            Ok(deliveries) => {
                let (messages, receipts): (Vec<_>, Vec<_>) = deliveries
                    .into_iter()
                    .map(|delivery| (delivery.message, delivery.receipt))
                    .unzip();
                settle(&*consumer, &work, messages, receipts).await
            }
            Err(error) => Err(error),
        };
        match trouble {
            Ok(()) => pause = FIRST_PAUSE,
            Err(error) if error.is_transient() || matches!(error, TransportError::Lost) => {
                tracing::warn!(%error, group, "consuming waits");
                stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(error) => return Err(refused(&error)),
        }
    }
    consumer.close().await.map_err(|error| refused(&error))
}

async fn settle(
    consumer: &dyn Consumer,
    work: &Arc<Work>,
    messages: Vec<Message>,
    receipts: Vec<Receipt>,
) -> Result<(), TransportError> {
    let count = messages.len();
    let verdicts = match work(messages).await {
        Ok(verdicts) => verdicts,
        Err(error) => {
            // Nothing of it is known to be done: all come again, at no cost.
            tracing::warn!(%error, "messages could not be handled now; they come again");
            vec![Verdict::Snooze(WAIT); count]
        }
    };
    postrider_crashpoint::point!("evidence.before_ack")
        .map_err(|error| TransportError::of_engine("evidence", Error::from(error)))?;
    let batch = receipts.into_iter().zip(verdicts).collect();
    consumer.settle(batch).await.map(drop)
}

async fn open(
    transport: &dyn Transport,
    subscription: Subscription,
) -> Result<Box<dyn Consumer>, TransportError> {
    let mut pause = FIRST_PAUSE;
    loop {
        match transport.subscribe(subscription.clone()).await {
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, group = subscription.group(), "subscribing waits");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            other => return other,
        }
    }
}

/// The program's parts end with the engine's errors.
fn refused(error: &TransportError) -> Error {
    Error::invalid("transport", error.to_string())
}
