//! A group's queue, read by its single active consumer.
//!
//! The broker hands out in order and, when a consumer is gone, begins with what that one had not acknowledged. So every
//! consumer sees an unbroken piece of the queue from its front.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Consumer};
use postrider::transport::{Message, TransportError};

use super::link::Link;
use super::{ANSWER, NAME, declare_queue, queue, unavailable};
use crate::broker::{Arrival, Cause, Source};

/// So many messages are in our hands unacknowledged.
const PREFETCH: u16 = 500;
const MOST_BYTES: usize = 8 * 1024 * 1024;

pub(super) struct RabbitSource {
    link: Link,
    group: String,
    topics: Vec<String>,
    /// If the queue is ours to declare: with so many copies.
    replicas: Option<usize>,
    open: Option<(Channel, Consumer)>,
    /// The last that was fetched.
    last: Option<u64>,
}

impl RabbitSource {
    pub fn new(link: Link, group: &str, topics: &[String], replicas: Option<usize>) -> Self {
        Self {
            link,
            group: group.to_owned(),
            topics: topics.to_vec(),
            replicas,
            open: None,
            last: None,
        }
    }

    async fn fetch(&mut self, wait: Duration) -> Result<Vec<Message>, Cause> {
        if self.open.is_none() {
            let opened = tokio::time::timeout(ANSWER, self.open()).await;
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
        while let Some(came) = next.take() {
            let delivery = came.ok_or("the broker has ended the subscription")??;
            self.last = Some(delivery.delivery_tag);
            bytes += delivery.data.len();
            batch.push(read(&delivery));
            if batch.len() < usize::from(PREFETCH) && bytes < MOST_BYTES {
                next = consumer.next().now_or_never();
            }
        }
        Ok(batch)
    }

    /// A server that was killed may come back without the queue or its bindings, and what is published meanwhile would
    /// find nobody. So each new channel declares them again.
    async fn open(&self) -> Result<(Channel, Consumer), Cause> {
        let channel = self.link.channel().await?;
        if let Some(replicas) = self.replicas {
            declare_queue(&channel, &self.group, &self.topics, replicas).await?;
        }
        let limit = BasicQosOptions::default();
        channel.basic_qos(PREFETCH, limit).await?;
        let consumer = channel
            .basic_consume(
                queue(&self.group).into(),
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

    /// What this channel held goes back to the queue's front.
    fn start_over(&mut self) {
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
    let fields = headers.inner().iter();
    let fields = fields.filter_map(|(name, value)| Some((name.to_string(), text(value)?)));
    // The broker's own notes, such as how often it was delivered.
    let fields = fields.filter(|(name, _)| !name.starts_with("x-")).collect();
    let id = properties.message_id().as_ref().map(ToString::to_string);
    Arrival {
        // A place in a queue has no name. Whoever wants to be recognised must give an id.
        id: Some(id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string())),
        place: [NAME, "", ""],
        topic: delivery.routing_key.as_str(),
        key: None,
        payload: &delivery.data,
        fields,
    }
    .open()
}

impl Source for RabbitSource {
    fn fetch(&mut self, wait: Duration) -> BoxFuture<'_, Result<Vec<Message>, TransportError>> {
        Box::pin(async move {
            let fetched = self.fetch(wait).await;
            if fetched.is_err() {
                self.start_over();
            }
            fetched.map_err(unavailable)
        })
    }

    fn acknowledge(&mut self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let acknowledged = self.acknowledge().await;
            if acknowledged.is_err() {
                self.start_over();
            }
            acknowledged.map_err(unavailable)
        })
    }

    fn rest(&mut self, how_long: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }
}
