//! A member of the consumer group.
//!
//! One member at a time reads a partition, from the committed offset on; offsets are committed after our own commit. A member
//! that lost a partition without noticing stores what its successor stores too, in the same order, and the database
//! recognises the duplicates.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use postrider::transport::{Message, TransportError};
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::time::Instant;

use super::error::classify;
use super::{MAX_MESSAGE_BYTES, NAME};
use crate::broker::{Cause, Incoming, Source};

const MAX_FETCH: usize = 500;
const MAX_FETCH_BYTES: usize = 8 * 1024 * 1024;

pub(super) struct KafkaSource {
    config: ClientConfig,
    topics: Vec<String>,
    consumer: Option<Arc<StreamConsumer>>,
    /// The offset of each partition after the fetched messages.
    fetched: TopicPartitionList,
    /// Arrived while paused.
    early: Vec<Message>,
    paused: bool,
}

impl KafkaSource {
    pub fn new(config: &ClientConfig, group: &str, topics: Vec<String>) -> Self {
        let mut config = config.clone();
        let settings = [
            ("group.id", group),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            // If the brokers have lost a group's offsets, reading again costs duplicates, which the database recognises.
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
            ("session.timeout.ms", "10000"),
            ("queued.max.messages.kbytes", "16384"),
            ("fetch.message.max.bytes", MAX_MESSAGE_BYTES),
        ];
        for (name, value) in settings {
            config.set(name, value);
        }
        Self {
            config,
            topics,
            consumer: None,
            fetched: TopicPartitionList::new(),
            early: Vec::new(),
            paused: false,
        }
    }

    fn consumer(&mut self) -> Result<Arc<StreamConsumer>, KafkaError> {
        if let Some(consumer) = &self.consumer {
            return Ok(Arc::clone(consumer));
        }
        let consumer: StreamConsumer = self.config.create()?;
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics)?;
        Ok(Arc::clone(self.consumer.insert(Arc::new(consumer))))
    }

    async fn fetch(&mut self, wait: Duration) -> Result<Vec<Message>, Cause> {
        let consumer = self.consumer()?;
        if self.paused {
            consumer.resume(&consumer.assignment()?)?;
            self.paused = false;
        }
        let mut batch = std::mem::take(&mut self.early);
        if batch.is_empty() {
            self.fetched = TopicPartitionList::new();
            match next_message(&consumer, wait).await? {
                Some(message) => batch.push(self.read(&message)?),
                None => return Ok(batch),
            }
        }
        let mut bytes = 0;
        while batch.len() < MAX_FETCH && bytes < MAX_FETCH_BYTES {
            let Some(message) = consumer.recv().now_or_never() else {
                break;
            };
            // Messages before an error are good; a persistent error comes again.
            let Ok(message) = message else {
                break;
            };
            bytes += message.payload_len();
            batch.push(self.read(&message)?);
        }
        Ok(batch)
    }

    fn read(&mut self, message: &BorrowedMessage<'_>) -> Result<Message, KafkaError> {
        let next = Offset::Offset(message.offset() + 1);
        let (topic, partition) = (message.topic(), message.partition());
        match self.fetched.find_partition(topic, partition) {
            Some(mut element) => element.set_offset(next)?,
            None => self.fetched.add_partition_offset(topic, partition, next)?,
        }
        let mut headers = Vec::new();
        if let Some(received) = message.headers() {
            for header in received.iter() {
                let value = String::from_utf8_lossy(header.value.unwrap_or_default());
                headers.push((header.key.to_owned(), value.into_owned()));
            }
        }
        let key = message
            .key()
            .map(|key| String::from_utf8_lossy(key).into_owned());
        let incoming = Incoming {
            id: None,
            position: [NAME, topic, &format!("{partition}/{}", message.offset())],
            topic,
            key,
            payload: message.payload().unwrap_or_default(),
            headers,
        };
        Ok(incoming.into_message())
    }

    /// Doesn't wait for the answer: without a broker that can take a minute, and a lost offset costs only a redelivery.
    fn acknowledge(&mut self) -> Result<(), KafkaError> {
        let fetched = std::mem::replace(&mut self.fetched, TopicPartitionList::new());
        self.consumer()?.commit(&fetched, CommitMode::Async)
    }

    /// A paused member stays in the group as long as it polls.
    async fn pause(&mut self, duration: Duration) -> Result<(), Cause> {
        let consumer = self.consumer()?;
        consumer.pause(&consumer.assignment()?)?;
        self.paused = true;
        if let Some(message) = next_message(&consumer, duration).await? {
            let message = self.read(&message)?;
            self.early.push(message);
        }
        Ok(())
    }
}

/// The next message within `wait`. Skips errors: the library queues one for every failed connection attempt, and handling each
/// would delay the recovery by as long as the outage took.
async fn next_message(
    consumer: &StreamConsumer,
    wait: Duration,
) -> Result<Option<BorrowedMessage<'_>>, KafkaError> {
    let end = Instant::now() + wait;
    let mut last_error = None;
    loop {
        match tokio::time::timeout_at(end, consumer.recv()).await {
            Ok(Ok(message)) => return Ok(Some(message)),
            Ok(Err(error)) => last_error = Some(error),
            Err(_) => return last_error.map_or(Ok(None), Err),
        }
    }
}

impl Source for KafkaSource {
    fn fetch(&mut self, wait: Duration) -> BoxFuture<'_, Result<Vec<Message>, TransportError>> {
        Box::pin(async move { self.fetch(wait).await.map_err(classify) })
    }

    fn acknowledge(&mut self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move { self.acknowledge().map_err(classify) })
    }

    fn pause(&mut self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Err(error) = self.pause(duration).await {
                tracing::debug!(%error, "pausing the partitions failed; waiting without it");
                tokio::time::sleep(duration).await;
            }
        })
    }
}

impl Drop for KafkaSource {
    /// Leaving the group blocks on the broker, so it needs a thread outside the runtime.
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}
