//! The publisher: gives what the outbox holds to the transport.

use std::sync::Arc;

use postrider_engine::{outbox::OUTBOX, publisher::Publisher, runtime::Worker};

use super::parts::Ground;

/// A worker over the outbox that publishes every topic.
pub(super) async fn part(ground: &Ground) -> postrider_engine::Result<Worker> {
    let transport = Arc::clone(&ground.transport);
    let publisher =
        Publisher::new(transport, &ground.breakers, ground.pool.clone(), &OUTBOX).await?;
    Ok(Worker::new(ground.pool.clone(), &OUTBOX)?.handle_others(publisher.handler()))
}
