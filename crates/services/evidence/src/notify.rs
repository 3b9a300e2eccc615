//! Consumes results and notifications: a result may complete its job's N1 or N2, a notification goes to its receivers.

mod deliver;
mod smtp;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    BoxError, Error, Verdict,
    transport::{BatchHandler, BatchOutcome, Delivery, Subscriber, Subscription, Transport},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use deliver::{Deliverer, InvalidReceiver};

use crate::{
    events::{NOTIFICATIONS, RESULTS, ResultEvent},
    summary_gate::Gate,
};

/// The consumer group of results.
pub const GROUP: &str = "evidence.notify";

/// The consumer group of notifications.
pub const DELIVERERS: &str = "evidence.deliver";

/// Results of one job in one batch are checked once.
const MAX_RESULTS: usize = 500;

/// Consumes results until `stop`: checks whether N1 or N2 of their jobs is due.
pub async fn watch(
    gate: Gate,
    transport: Arc<dyn Transport>,
    lease: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let subscription = Subscription::new(GROUP, [RESULTS])?
        .prefetch(2 * MAX_RESULTS)
        .lease(lease);
    let pool = gate.pool().clone();
    let subscriber = Subscriber::batch(transport, subscription, pool, MAX_RESULTS, Arc::new(gate));
    Ok(subscriber.run(stop).await?)
}

/// A result is only a hint to check its job, so duplicates do no harm.
impl BatchHandler for Gate {
    fn handle<'a>(
        &'a self,
        batch: &'a [Delivery],
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(async move {
            let mut jobs = BTreeSet::new();
            let mut verdicts = Vec::with_capacity(batch.len());
            for delivery in batch {
                verdicts.push(match delivery.message.read::<ResultEvent>() {
                    Ok(result) => {
                        jobs.insert(result.file_job_id);
                        Verdict::Done
                    }
                    Err(failure) => Verdict::Dead(failure),
                });
            }
            let jobs: Vec<Uuid> = jobs.into_iter().collect();
            self.check(&jobs).await?;
            Ok(verdicts.into())
        })
    }
}

/// Delivers notifications until `stop`.
pub async fn deliver(
    deliverer: Deliverer,
    transport: Arc<dyn Transport>,
    lease: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    // Receivers may be slow: the lease is longer than any one call.
    let timeout = deliverer.timeout();
    let subscription = Subscription::new(DELIVERERS, [NOTIFICATIONS])?
        .prefetch(deliver::MAX_CONCURRENT)
        .lease(lease.max(2 * timeout))
        .policy(deliver::policy()?);
    let pool = deliverer.pool().clone();
    let handler = Arc::new(deliverer);
    let subscriber = Subscriber::batch(
        transport,
        subscription,
        pool,
        deliver::MAX_CONCURRENT,
        handler,
    );
    // A webhook, a mail, and the database before and after them.
    Ok(subscriber
        .handler_timeout(4 * timeout + Duration::from_secs(60))
        .run(stop)
        .await?)
}

/// A notification that was delivered is recorded as such, so a duplicate finds nothing to do.
impl BatchHandler for Deliverer {
    fn handle<'a>(
        &'a self,
        batch: &'a [Delivery],
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(async move { Ok(self.deliver_all(batch).await.into()) })
    }
}
