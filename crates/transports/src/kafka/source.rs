//! A member of the consumer group.
//!
//! A partition is read by one member at a time, from the committed offset on; offsets are committed after our own commit. A
//! member that lost a partition without noticing stores what its successor stores too, in the same order, and the database
//! recognises it.

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

use super::{MOST_BYTES as MOST_MESSAGE, NAME, unavailable};
use crate::broker::{Arrival, Cause, Source};

const MOST: usize = 500;
const MOST_BYTES: usize = 8 * 1024 * 1024;

pub(super) struct KafkaSource {
    config: ClientConfig,
    topics: Vec<String>,
    consumer: Option<Arc<StreamConsumer>>,
    /// Where the next fetch of each partition begins.
    reached: TopicPartitionList,
    /// Came although nothing was wanted.
    early: Vec<Message>,
    paused: bool,
}

impl KafkaSource {
    pub fn new(config: &ClientConfig, group: &str, topics: Vec<String>) -> Self {
        let mut config = config.clone();
        let ours = [
            ("group.id", group),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            // A group whose offsets the brokers have forgotten reads again and recognises, instead of losing.
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
            ("session.timeout.ms", "10000"),
            ("queued.max.messages.kbytes", "16384"),
            ("fetch.message.max.bytes", MOST_MESSAGE),
        ];
        for (name, value) in ours {
            config.set(name, value);
        }
        Self {
            config,
            topics,
            consumer: None,
            reached: TopicPartitionList::new(),
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
            self.reached = TopicPartitionList::new();
            match first(&consumer, wait).await? {
                Some(message) => batch.push(self.read(&message)?),
                None => return Ok(batch),
            }
        }
        let mut bytes = 0;
        while batch.len() < MOST && bytes < MOST_BYTES {
            let Some(message) = consumer.recv().now_or_never() else {
                break;
            };
            // What came before an error is good; the error comes again if it lasts.
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
        match self.reached.find_partition(topic, partition) {
            Some(mut element) => element.set_offset(next)?,
            None => self.reached.add_partition_offset(topic, partition, next)?,
        }
        let mut fields = Vec::new();
        if let Some(headers) = message.headers() {
            for header in headers.iter() {
                let value = String::from_utf8_lossy(header.value.unwrap_or_default());
                fields.push((header.key.to_owned(), value.into_owned()));
            }
        }
        let key = message
            .key()
            .map(|key| String::from_utf8_lossy(key).into_owned());
        let arrival = Arrival {
            id: None,
            place: [NAME, topic, &format!("{partition}/{}", message.offset())],
            topic,
            key,
            payload: message.payload().unwrap_or_default(),
            fields,
        };
        Ok(arrival.open())
    }

    /// Without waiting for the answer: while a broker is away that may take a minute, and an offset that gets lost costs a
    /// repetition, no more.
    fn acknowledge(&mut self) -> Result<(), KafkaError> {
        let reached = std::mem::replace(&mut self.reached, TopicPartitionList::new());
        self.consumer()?.commit(&reached, CommitMode::Async)
    }

    /// Paused partitions keep their place in the group: the library goes on to speak with the brokers as long as it is asked.
    async fn rest(&mut self, how_long: Duration) -> Result<(), Cause> {
        let consumer = self.consumer()?;
        consumer.pause(&consumer.assignment()?)?;
        self.paused = true;
        if let Some(message) = first(&consumer, how_long).await? {
            let message = self.read(&message)?;
            self.early.push(message);
        }
        Ok(())
    }
}

/// The library queues an error for every try to reach a broker; they are passed by, or after an outage it would take as long
/// again to work them off.
async fn first(
    consumer: &StreamConsumer,
    wait: Duration,
) -> Result<Option<BorrowedMessage<'_>>, KafkaError> {
    let end = Instant::now() + wait;
    let mut trouble = None;
    loop {
        match tokio::time::timeout_at(end, consumer.recv()).await {
            Ok(Ok(message)) => return Ok(Some(message)),
            Ok(Err(error)) => trouble = Some(error),
            Err(_) => return trouble.map_or(Ok(None), Err),
        }
    }
}

impl Source for KafkaSource {
    fn fetch(&mut self, wait: Duration) -> BoxFuture<'_, Result<Vec<Message>, TransportError>> {
        Box::pin(async move { self.fetch(wait).await.map_err(unavailable) })
    }

    fn acknowledge(&mut self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move { self.acknowledge().map_err(unavailable) })
    }

    fn rest(&mut self, how_long: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Err(error) = self.rest(how_long).await {
                tracing::debug!(%error, "partitions could not be paused");
                tokio::time::sleep(how_long).await;
            }
        })
    }
}

impl Drop for KafkaSource {
    /// Leaving the group means waiting for the broker, which a thread of the runtime must not.
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}
