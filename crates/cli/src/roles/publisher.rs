//! The publisher: gives what the outbox holds to the transport. Alerts alone it delivers itself.

use std::sync::Arc;

use postrider::{outbox::OUTBOX, publisher::Publisher, runtime::Worker};

use super::parts::Resources;
use crate::{
    alerts,
    exit::{Exit, Failure},
};

/// A worker over the outbox that publishes every topic.
pub(super) async fn part(ground: &Resources, alerts: &alerts::Settings) -> Result<Worker, Failure> {
    let failed =
        |e: postrider::Error| Failure::caused(Exit::Database, "a role can't be started", &e);
    let transport = Arc::clone(&ground.transport);
    let publisher = Publisher::new(transport, &ground.breakers, ground.pool.clone(), &OUTBOX)
        .await
        .map_err(failed)?;
    let worker = Worker::new(ground.pool.clone(), &OUTBOX)
        .map_err(failed)?
        .with_pool(&ground.side)
        .handle(alerts::TOPIC, alerts::handler(alerts)?);
    Ok(publisher.attach_to(worker))
}
