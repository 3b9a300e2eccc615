//! Publication: from `payments.outbox` to the transport.
//!
//! In the mode `chance` a row is tried `payments.publish.max_attempts` times at most, and a broker that is away or has no
//! queue for it counts as a failed try like any other; then the row stays, EXHAUSTED, and says why. In the mode `assured`
//! an outage costs nothing, and a message that the transport refuses is tried for hours before it is a dead letter.

use std::sync::Arc;
use std::time::Duration;

use postrider::{
    Error, Result,
    breaker::Breakers,
    failure::Failure,
    lease::Item,
    publisher::{Outages, Publisher, PublisherOptions},
    retry::Policy,
    runtime::{Worker, WorkerOptions, WorkerPool},
    transport::{Message, Origin, Transport},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{OUTBOX, Settings, counters, settings::Mode, wallet::listener::GROUP};

/// What the wallet listens to.
pub const TOPIC: &str = "payments.requested";

/// A broker that takes longer to answer is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// Publishes until the stop.
pub async fn run(
    pool: PgPool,
    settings: Settings,
    transport: Arc<dyn Transport>,
    breakers: Breakers,
    side: WorkerPool,
    stop: CancellationToken,
) -> Result<()> {
    let declared = declare(Arc::clone(&transport), stop.clone());
    let origin = match stop.run_until_cancelled(origin(&pool)).await {
        Some(origin) => origin,
        None => return Ok(()),
    };
    let publisher = Publisher::new(transport, &breakers, pool.clone(), &OUTBOX)
        .await?
        .options(options(&settings)?)
        .envelope(move |item| Ok(message(origin, item)));
    let handler = publisher.handler().on_dead(|item, failure| {
        told(item, failure);
        None
    });
    let worker = Worker::new(pool, &OUTBOX)?
        .with_pool(&side)
        .options(WorkerOptions {
            lease: settings.lease.seconds,
            rescue_every: settings.lease.seconds.min(Duration::from_secs(1)),
            ..WorkerOptions::default()
        })
        .handle_others(handler);
    let (worked, ()) = tokio::join!(worker.run(stop), declared);
    worked
}

fn options(settings: &Settings) -> Result<PublisherOptions> {
    let wrong = |error: postrider::retry::PolicyError| {
        Error::invalid("payments.publish", error.to_string())
    };
    Ok(match settings.delivery {
        Mode::Chance => PublisherOptions {
            outages: Outages::Count,
            policy: settings.publish_policy().map_err(wrong)?,
            ..PublisherOptions::default()
        },
        Mode::Assured => PublisherOptions {
            policy: Policy::exponential(Duration::from_secs(1), Duration::from_secs(600), 30)
                .map_err(wrong)?,
            unroutable_wait: Duration::from_secs(2),
            ..PublisherOptions::default()
        },
    })
}

/// The message's id is settled with the row's number, in the transaction that accepted the request.
fn message(origin: Origin, item: &Item) -> Message {
    Message {
        headers: item.headers.clone(),
        trace: item.trace.clone(),
        ..Message::new(origin.mint(item.id), TOPIC, item.payload.clone())
    }
}

/// Waits for a database that is away.
async fn origin(pool: &PgPool) -> Origin {
    loop {
        let read = async { Origin::of(&mut *pool.acquire().await?, &OUTBOX).await };
        match read.await {
            Ok(origin) => return origin,
            Err(error) => tracing::warn!(%error, "publishing payments waits for the database"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Makes the wallet's subscription durable, so that a message finds its queue though no wallet has ever run.
async fn declare(transport: Arc<dyn Transport>, stop: CancellationToken) {
    let mut pause = Duration::from_millis(100);
    loop {
        let call = tokio::time::timeout(PATIENCE, transport.declare(TOPIC, GROUP));
        match stop.run_until_cancelled(call).await {
            None | Some(Ok(Ok(()))) => return,
            Some(Ok(Err(error))) => {
                tracing::warn!(%error, transport = transport.name(), "the wallet's queue can't be declared yet");
            }
            Some(Err(_)) => {
                tracing::warn!(
                    transport = transport.name(),
                    "the wallet's queue can't be declared yet: no answer"
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
        pause = (pause * 2).min(PATIENCE);
    }
}

/// The first of the three ways to stay pending is told explicitly.
fn told(item: &Item, failure: &Failure) {
    counters::exhausted(1);
    let uuid = item
        .read::<crate::model::Notice>()
        .map(|notice| notice.uuid.to_string());
    tracing::error!(
        uuid = uuid.as_deref().unwrap_or("unreadable"),
        reason = "OUTBOX_EXHAUSTED",
        try_count = item.attempts + 1,
        error_code = failure.code(),
        error = failure.message(),
        "the payment's message could not be published; the request stays PENDING"
    );
}
