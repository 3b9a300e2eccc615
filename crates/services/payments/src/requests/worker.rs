//! Publishes `payments.outbox` to the transport.
//!
//! In mode `chance` a row is tried at most `payments.publish.max_attempts` times. An unavailable broker or a missing queue
//! counts as a failed attempt; after the last one the row stays EXHAUSTED and shows why. In mode `assured` an outage costs
//! no attempt, and a message that the transport rejects is retried for hours before it becomes a dead letter.

use std::sync::Arc;
use std::time::Duration;

use postrider::{
    Error, Result, RetryPolicy, Worker, WorkerOptions, WorkerPool,
    breaker::Breakers,
    failure::Failure,
    lease::Item,
    publisher::{Outages, Publisher, PublisherOptions},
    transport::{Message, Origin, Transport},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use super::{OUTBOX, TOPIC};
use crate::{Settings, gauges, model::PaymentMessage, settings::DeliveryMode, wallet::GROUP};

/// Timeout of a declare call, and the longest pause between two of them.
const DECLARE_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes until `stop` is cancelled.
pub async fn run(
    pool: PgPool,
    settings: Settings,
    transport: Arc<dyn Transport>,
    breakers: Breakers,
    worker_pool: WorkerPool,
    stop: CancellationToken,
) -> Result<()> {
    let declared = declare(Arc::clone(&transport), stop.clone());
    let Some(origin) = stop.run_until_cancelled(origin(&pool)).await else {
        return Ok(());
    };
    let publisher = Publisher::new(transport, &breakers, pool.clone(), &OUTBOX)
        .await?
        .options(options(&settings)?)
        .envelope(move |item| Ok(message(origin, item)));
    let handler = publisher.handler().on_dead(|item, failure| {
        report_exhausted(item, failure);
        None
    });
    let worker = Worker::new(pool, &OUTBOX)?
        .with_pool(&worker_pool)
        .options(WorkerOptions {
            lease: settings.lease.seconds,
            rescue_every: settings.lease.seconds.min(Duration::from_secs(1)),
            ..WorkerOptions::default()
        })
        .handle_others(handler);
    let (result, ()) = tokio::join!(worker.run(stop), declared);
    result
}

fn options(settings: &Settings) -> Result<PublisherOptions> {
    let invalid = |error: postrider::retry::PolicyError| {
        Error::invalid("payments.publish", error.to_string())
    };
    Ok(match settings.delivery {
        DeliveryMode::Chance => PublisherOptions {
            outages: Outages::Count,
            policy: settings.publish_policy().map_err(invalid)?,
            ..PublisherOptions::default()
        },
        DeliveryMode::Assured => PublisherOptions {
            policy: RetryPolicy::exponential(Duration::from_secs(1), Duration::from_secs(600), 30)
                .map_err(invalid)?,
            unroutable_wait: Duration::from_secs(2),
            ..PublisherOptions::default()
        },
    })
}

/// The message id follows from the row's id, so it was fixed in the transaction that accepted the request.
fn message(origin: Origin, item: &Item) -> Message {
    Message {
        headers: item.headers.clone(),
        trace: item.trace.clone(),
        ..Message::new(origin.mint(item.id), TOPIC, item.payload.clone())
    }
}

/// Reads the outbox's origin; retries while the database is unavailable.
async fn origin(pool: &PgPool) -> Origin {
    loop {
        let read = async { Origin::load(&mut *pool.acquire().await?, &OUTBOX).await };
        match read.await {
            Ok(origin) => return origin,
            Err(error) => {
                tracing::warn!(%error, "database unavailable; publishing of payments paused, retrying");
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Creates the wallet's durable subscription, so that a message finds its queue before any wallet has run.
async fn declare(transport: Arc<dyn Transport>, stop: CancellationToken) {
    let mut pause = Duration::from_millis(100);
    loop {
        let call = tokio::time::timeout(DECLARE_TIMEOUT, transport.declare(TOPIC, GROUP));
        match stop.run_until_cancelled(call).await {
            None | Some(Ok(Ok(()))) => return,
            Some(Ok(Err(error))) => {
                tracing::warn!(%error, transport = transport.name(), "can't declare the wallet's queue; retrying");
            }
            Some(Err(_)) => {
                tracing::warn!(
                    transport = transport.name(),
                    "declaring the wallet's queue timed out; retrying"
                );
            }
        }
        if stop
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_none()
        {
            return;
        }
        pause = (pause * 2).min(DECLARE_TIMEOUT);
    }
}

/// Counts and logs a message that could not be published.
fn report_exhausted(item: &Item, failure: &Failure) {
    gauges::exhausted(1);
    let uuid = item
        .read::<PaymentMessage>()
        .map(|message| message.uuid.to_string());
    tracing::error!(
        uuid = uuid.as_deref().unwrap_or("unreadable"),
        reason = "OUTBOX_EXHAUSTED",
        try_count = item.attempts + 1,
        error_code = failure.code(),
        error = failure.message(),
        "publishing the payment's message failed for good; the request stays PENDING until it is redriven or reconciled"
    );
}
