//! A group's messages of one topic, in the stream's order.
//!
//! A pull consumer hands out messages to every intake that asks: two intakes of a group get parts of the stream, and a lost
//! response leaves a gap until the server redelivers. So order follows the stream's sequence numbers: a message is released
//! when all earlier ones were acknowledged or are released first. A gap is waited for, but not for long: messages of a dead
//! intake come back only after the acknowledgement deadline, and a server that lost the group's position would make us wait
//! for messages that no longer exist. Messages that the stream still has in a gap are read from it; their redelivery is then
//! a duplicate.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::message::{Acker, StreamMessage};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use postrider::transport::{Message, TransportError};
use tokio::time::Instant;

use super::error::classify;
use super::missed::{self, MissedMessages};
use super::{ACK_WAIT, LazyClient, MAX_UNACKED, NAME, consumer_name, stream_name};
use crate::broker::{Cause, Incoming, Source};

const MAX_FETCH_BYTES: usize = 8 * 1024 * 1024;
const GAP_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long other intakes have to acknowledge the messages of a gap.
const GAP_TIMEOUT: Duration = Duration::from_secs(2);
/// How much longer than the requested wait a response may take.
const RESPONSE_GRACE: Duration = Duration::from_secs(2);

pub(super) struct NatsSource {
    client: LazyClient,
    topic: String,
    group: String,
    consumer: Option<PullConsumer>,
    /// The sequence number to release next.
    next: u64,
    /// Pulled but not released, by sequence number.
    buffer: BTreeMap<u64, Buffered>,
    /// Released but not acknowledged.
    unacked: Vec<Acker>,
    missed: MissedMessages,
    /// When the current gap was first seen.
    gap_since: Option<Instant>,
}

struct Buffered {
    message: Message,
    acker: Acker,
    since: Instant,
}

impl NatsSource {
    pub fn new(client: LazyClient, topic: &str, group: &str) -> Self {
        Self {
            client,
            topic: topic.to_owned(),
            group: group.to_owned(),
            consumer: None,
            next: 0,
            buffer: BTreeMap::new(),
            unacked: Vec::new(),
            missed: MissedMessages::default(),
            gap_since: None,
        }
    }

    async fn fetch(&mut self, wait: Duration) -> Result<Vec<Message>, Cause> {
        self.unacked.clear();
        // The server is about to redeliver older ones, perhaps to another intake.
        self.buffer
            .retain(|_, buffered| buffered.since.elapsed() < ACK_WAIT * 3 / 4);
        let consumer = self.consumer().await?;
        let missed = self
            .missed
            .find(&self.client, &self.topic, &consumer)
            .await?;
        if !missed.is_empty() {
            tracing::warn!(
                count = missed.len(),
                topic = self.topic,
                group = self.group,
                "a server restart left messages behind; reading them from the stream"
            );
            return Ok(self.read_all(missed));
        }
        let before = self.buffer.len();
        self.pull(&consumer, MAX_UNACKED.saturating_sub(before), None)
            .await?;
        if self.buffer.is_empty() {
            self.pull(&consumer, 1, Some(wait)).await?;
        }
        let batch = self.release();
        if !batch.is_empty() || self.buffer.is_empty() {
            self.gap_since = None;
            return Ok(batch);
        }
        self.skip_acknowledged(&consumer).await?;
        let batch = self.release();
        if !batch.is_empty() {
            return Ok(batch);
        }
        if self.gap_since.get_or_insert_with(Instant::now).elapsed() < GAP_TIMEOUT {
            tokio::time::sleep(GAP_POLL_INTERVAL).await;
            return Ok(Vec::new());
        }
        self.fill_gap().await
    }

    /// Reads the messages before the first buffered one from the stream.
    async fn fill_gap(&mut self) -> Result<Vec<Message>, Cause> {
        let Some((first, _)) = self.buffer.first_key_value() else {
            return Ok(Vec::new());
        };
        let context = self.client.context().await?;
        let stream = context.get_stream(stream_name(&self.topic)).await?;
        self.gap_since = None;
        match missed::read(&stream, &self.topic, self.next, first - 1).await {
            Ok((messages, checked)) => {
                self.next = checked + 1;
                Ok(self.read_all(messages))
            }
            Err(error) => {
                // The server redelivers them, only later.
                tracing::warn!(%error, topic = self.topic, "can't read missing messages from the stream, so they arrive late; grant $JS.API.STREAM.MSG.GET");
                Ok(Vec::new())
            }
        }
    }

    fn read_all(&self, messages: Vec<StreamMessage>) -> Vec<Message> {
        let read =
            |message: StreamMessage| self.read(message.sequence, message.headers, &message.payload);
        messages.into_iter().map(read).collect()
    }

    async fn consumer(&mut self) -> Result<PullConsumer, Cause> {
        if let Some(consumer) = &self.consumer {
            return Ok(consumer.clone());
        }
        let context = self.client.context().await?;
        let stream = context.get_stream(stream_name(&self.topic)).await?;
        let consumer: PullConsumer = stream.get_consumer(&consumer_name(&self.group)).await?;
        self.next = consumer.cached_info().ack_floor.stream_sequence + 1;
        self.consumer = Some(consumer.clone());
        Ok(consumer)
    }

    /// Pulls the available messages, or the first that arrives within `wait`.
    async fn pull(
        &mut self,
        consumer: &PullConsumer,
        max: usize,
        wait: Option<Duration>,
    ) -> Result<(), Cause> {
        if max == 0 {
            return Ok(());
        }
        let limit = wait.unwrap_or_default() + RESPONSE_GRACE;
        let pulling = async {
            let mut batch = match wait {
                Some(wait) => {
                    let batch = consumer.batch().max_messages(max).expires(wait);
                    batch.messages().await?
                }
                None => {
                    let batch = consumer
                        .fetch()
                        .max_messages(max)
                        .max_bytes(MAX_FETCH_BYTES);
                    batch.expires(RESPONSE_GRACE).messages().await?
                }
            };
            while let Some(message) = batch.next().await {
                self.buffer(message?)?;
            }
            Ok(())
        };
        // If a response was lost, its messages are redelivered.
        tokio::time::timeout(limit, pulling).await.unwrap_or(Ok(()))
    }

    fn buffer(&mut self, message: async_nats::jetstream::Message) -> Result<(), Cause> {
        let sequence = message.info()?.stream_sequence;
        let (message, acker) = message.split();
        let headers = message.headers.unwrap_or_default();
        let buffered = Buffered {
            message: self.read(sequence, headers, &message.payload),
            acker,
            since: Instant::now(),
        };
        self.buffer.insert(sequence, buffered);
        Ok(())
    }

    fn read(&self, sequence: u64, received: HeaderMap, payload: &[u8]) -> Message {
        let mut id = None;
        let mut headers = Vec::new();
        for (name, values) in received.iter() {
            let name: &str = name.as_ref();
            let Some(value) = values.first() else {
                continue;
            };
            if name.eq_ignore_ascii_case("nats-msg-id") {
                id = Some(value.to_string());
            } else if !name.to_ascii_lowercase().starts_with("nats-") {
                headers.push((name.to_owned(), value.to_string()));
            }
        }
        let incoming = Incoming {
            id,
            position: [NAME, &stream_name(&self.topic), &sequence.to_string()],
            topic: &self.topic,
            key: None,
            payload,
            headers,
        };
        incoming.into_message()
    }

    /// Removes the buffered messages that are next in order.
    fn release(&mut self) -> Vec<Message> {
        let mut batch = Vec::new();
        while let Some(first) = self.buffer.first_entry() {
            let sequence = *first.key();
            if sequence > self.next {
                break;
            }
            self.next = self.next.max(sequence + 1);
            let buffered = first.remove();
            batch.push(buffered.message);
            self.unacked.push(buffered.acker);
        }
        batch
    }

    /// Skips a gap that another intake has acknowledged, or whose messages nobody holds.
    async fn skip_acknowledged(&mut self, consumer: &PullConsumer) -> Result<(), Cause> {
        let info = consumer.get_info().await?;
        self.next = self.next.max(info.ack_floor.stream_sequence + 1);
        if info.num_ack_pending == self.buffer.len()
            && let Some((first, _)) = self.buffer.first_key_value()
        {
            self.next = self.next.max(*first);
        }
        Ok(())
    }
}

impl Source for NatsSource {
    fn fetch(&mut self, wait: Duration) -> BoxFuture<'_, Result<Vec<Message>, TransportError>> {
        Box::pin(async move {
            let fetched = self.fetch(wait).await;
            if fetched.is_err() {
                self.consumer = None;
            }
            fetched.map_err(classify)
        })
    }

    fn acknowledge(&mut self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            for acker in self.unacked.drain(..) {
                acker.ack().await.map_err(classify)?;
            }
            let deleted = self.missed.delete_stored(&self.client, &self.topic).await;
            deleted.map_err(classify)
        })
    }

    fn pause(&mut self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
