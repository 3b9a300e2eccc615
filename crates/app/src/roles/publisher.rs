//! The publisher: gives what the outbox holds to the transport. Alerts alone it delivers itself.

use std::sync::Arc;

use postrider_engine::{outbox::OUTBOX, publisher::Publisher, runtime::Worker};

use super::parts::Ground;
use crate::{
    alerts,
    exit::{Exit, Failure},
};

/// A worker over the outbox that publishes every topic.
pub(super) async fn part(ground: &Ground, alerts: &alerts::Settings) -> Result<Worker, Failure> {
    let failed =
        |e: postrider_engine::Error| Failure::caused(Exit::Database, "a role can't be started", &e);
    let transport = Arc::clone(&ground.transport);
    let publisher = Publisher::new(transport, &ground.breakers, ground.pool.clone(), &OUTBOX)
        .await
        .map_err(failed)?;
    let worker = Worker::new(ground.pool.clone(), &OUTBOX)
        .map_err(failed)?
        .beside(&ground.side)
        .handle(alerts::TOPIC, alerts::handler(alerts)?);
    Ok(publisher.others_of(worker))
}
