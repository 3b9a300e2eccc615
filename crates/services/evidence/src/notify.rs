//! N1 and N2 on their way: results open the gate, and what goes out is delivered to its receivers.

mod deliver;
mod smtp;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use postrider::{
    Error,
    runtime::Verdict,
    transport::{Message, Subscription, Transport},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use deliver::{Deliverer, Unusable};

use crate::{
    consume::consume,
    events::{NOTIFICATIONS, RESULTS, ResultEvent},
    summary_gate::Gate,
};

/// The consumer group that looks at results.
pub const GROUP: &str = "evidence.notify";

/// The consumer group that delivers notifications.
pub const DELIVERERS: &str = "evidence.deliver";

/// Results per look: those of one job need one.
const BATCH: usize = 500;

/// Looks at the jobs that results come from, until the stop.
pub async fn watch(
    gate: Gate,
    transport: Arc<dyn Transport>,
    lease: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let subscription = Subscription::new(GROUP, [RESULTS])?
        .prefetch(2 * BATCH)
        .lease(lease);
    let work = move |messages: Vec<Message>| {
        let gate = gate.clone();
        async move { look(&gate, &messages).await }.boxed()
    };
    consume(transport, subscription, BATCH, Arc::new(work), stop).await
}

async fn look(gate: &Gate, messages: &[Message]) -> Result<Vec<Verdict>, Error> {
    let mut jobs = BTreeSet::new();
    let mut verdicts = Vec::with_capacity(messages.len());
    for message in messages {
        verdicts.push(match message.read::<ResultEvent>() {
            Ok(result) => {
                jobs.insert(result.file_job_id);
                Verdict::Done
            }
            Err(failure) => Verdict::Dead(failure),
        });
    }
    let jobs: Vec<Uuid> = jobs.into_iter().collect();
    gate.look_at(&jobs).await?;
    Ok(verdicts)
}

/// Delivers notifications, until the stop.
pub async fn deliver(
    deliverer: Deliverer,
    transport: Arc<dyn Transport>,
    lease: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    // A receiver may be slow: the lease is longer than any one call.
    let lease = lease.max(2 * deliverer.longest());
    let subscription = Subscription::new(DELIVERERS, [NOTIFICATIONS])?
        .prefetch(deliver::AT_ONCE)
        .lease(lease)
        .policy(deliver::policy()?);
    let deliverer = Arc::new(deliverer);
    let work = move |messages: Vec<Message>| {
        let deliverer = Arc::clone(&deliverer);
        async move { Ok(deliverer.deliver_all(&messages).await) }.boxed()
    };
    consume(
        transport,
        subscription,
        deliver::AT_ONCE,
        Arc::new(work),
        stop,
    )
    .await
}
