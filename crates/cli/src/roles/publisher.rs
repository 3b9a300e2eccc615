//! The publisher: hands outbox messages to the transport. It delivers alerts itself.

use std::sync::Arc;

use postrider::{Worker, outbox::OUTBOX, publisher::Publisher};

use super::tasks::Resources;
use crate::{
    alerts,
    exit::{Exit, Failure},
};

/// A worker over the outbox that publishes every topic.
pub(super) async fn worker(
    resources: &Resources,
    alerts: &alerts::Settings,
) -> Result<Worker, Failure> {
    let failed =
        |e: postrider::Error| Failure::caused(Exit::Database, "the publisher can't be started", &e);
    let transport = Arc::clone(&resources.transport);
    let publisher = Publisher::new(
        transport,
        &resources.breakers,
        resources.pool.clone(),
        &OUTBOX,
    )
    .await
    .map_err(failed)?;
    let worker = Worker::new(resources.pool.clone(), &OUTBOX)
        .map_err(failed)?
        .with_pool(&resources.worker_pool)
        .handle(alerts::TOPIC, alerts::handler(alerts)?);
    Ok(publisher.attach_to(worker))
}
