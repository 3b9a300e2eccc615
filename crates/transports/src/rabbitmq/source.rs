//! A group's queue, read by its single active consumer.
//!
//! The broker delivers in order and, when a consumer is gone, starts with what that one had not acknowledged. So every
//! consumer sees an unbroken range from the front of the queue.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};
use postrider::transport::{Message, TransportError};

use super::connection::LazyConnection;
use super::error::classify;
use super::{NAME, REQUEST_TIMEOUT, declare_queue, queue_name};
use crate::broker::{Cause, Incoming, Source};

/// Maximum number of unacknowledged messages.
const PREFETCH: u16 = 500;
const MAX_FETCH_BYTES: usize = 8 * 1024 * 1024;

pub(super) struct RabbitSource {
    connection: LazyConnection,
    group: String,
    topics: Vec<String>,
    /// Number of replicas if this transport declares the queue.
    replicas: Option<usize>,
    open: Option<(Channel, Consumer)>,
    /// The delivery tag of the last fetched message.
    last: Option<u64>,
}

impl RabbitSource {
    pub fn new(
        connection: LazyConnection,
        group: &str,
        topics: &[String],
        replicas: Option<usize>,
    ) -> Self {
        Self {
            connection,
            group: group.to_owned(),
            topics: topics.to_vec(),
            replicas,
            open: None,
            last: None,
        }
    }

    async fn fetch(&mut self, wait: Duration) -> Result<Vec<Message>, Cause> {
        if self.open.is_none() {
            let opened = tokio::time::timeout(REQUEST_TIMEOUT, self.open()).await;
            self.open = Some(opened.map_err(|_| "the broker does not answer")??);
        }
        let Some((_, consumer)) = &mut self.open else {
            return Ok(Vec::new());
        };
        let Ok(first) = tokio::time::timeout(wait, consumer.next()).await else {
            return Ok(Vec::new());
        };
        let mut next = Some(first);
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(delivery) = next.take() {
            let delivery = delivery.ok_or("the broker has ended the subscription")??;
            self.last = Some(delivery.delivery_tag);
            bytes += delivery.data.len();
            batch.push(read(&delivery));
            if batch.len() < usize::from(PREFETCH) && bytes < MAX_FETCH_BYTES {
                next = consumer.next().now_or_never();
            }
        }
        Ok(batch)
    }

    /// A killed server may come back without the queue or its bindings, and messages published then would be unroutable. So
    /// each new channel declares them again.
    async fn open(&self) -> Result<(Channel, Consumer), Cause> {
        let channel = self.connection.channel().await?;
        if let Some(replicas) = self.replicas {
            declare_queue(&channel, &self.group, &self.topics, replicas).await?;
        }
        let limit = BasicQosOptions::default();
        channel.basic_qos(PREFETCH, limit).await?;
        let consumer = channel
            .basic_consume(
                queue_name(&self.group).into(),
                "".into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await?;
        Ok((channel, consumer))
    }

    async fn acknowledge(&mut self) -> Result<(), Cause> {
        if let (Some(last), Some((channel, _))) = (self.last.take(), &self.open) {
            channel
                .basic_ack(last, BasicAckOptions { multiple: true })
                .await?;
        }
        Ok(())
    }

    /// The channel's unacknowledged messages return to the front of the queue.
    fn reset(&mut self) {
        self.open = None;
        self.last = None;
    }
}

fn read(delivery: &Delivery) -> Message {
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => Some(text.to_string()),
        AMQPValue::ShortString(text) => Some(text.to_string()),
        AMQPValue::Boolean(value) => Some(value.to_string()),
        AMQPValue::LongInt(value) => Some(value.to_string()),
        AMQPValue::LongLongInt(value) => Some(value.to_string()),
        _ => None,
    };
    let properties = &delivery.properties;
    let headers = properties.headers().clone().unwrap_or_default();
    let headers = headers.inner().iter();
    let headers = headers.filter_map(|(name, value)| Some((name.to_string(), text(value)?)));
    // Without the broker's own headers, such as the delivery count.
    let headers = headers
        .filter(|(name, _)| !name.starts_with("x-"))
        .collect();
    let id = properties.message_id().as_ref().map(ToString::to_string);
    Incoming {
        // A position in a queue has no name: only messages with an id are recognised as duplicates.
        id: Some(id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string())),
        position: [NAME, "", ""],
        topic: delivery.routing_key.as_str(),
        key: None,
        payload: &delivery.data,
        headers,
    }
    .into_message()
}

impl Source for RabbitSource {
    fn fetch(&mut self, wait: Duration) -> BoxFuture<'_, Result<Vec<Message>, TransportError>> {
        Box::pin(async move {
            let fetched = self.fetch(wait).await;
            if fetched.is_err() {
                self.reset();
            }
            fetched.map_err(classify)
        })
    }

    fn acknowledge(&mut self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let acknowledged = self.acknowledge().await;
            if acknowledged.is_err() {
                self.reset();
            }
            acknowledged.map_err(classify)
        })
    }

    fn pause(&mut self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
