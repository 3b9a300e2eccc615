//! Publishing: idempotent, confirmed by all in-sync replicas.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider::transport::{Message, Published};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer as _};
use rdkafka::{ClientConfig, types::RDKafkaRespErr};

use super::error::{classify, publish_error};
use super::{MAX_MESSAGE_BYTES, NAME, REQUEST_TIMEOUT, topic_name};
use crate::broker::{Backoff, Cause, ID, encode_headers, unavailable_failure};

const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Creates its producer at the first use, and a new one after a fatal error.
#[derive(Default)]
pub(super) struct Producer {
    producer: Mutex<Option<FutureProducer>>,
    /// Topics that exist, by Kafka's name. Publishing to one that was deleted reveals it.
    known: Mutex<HashSet<String>>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

impl Producer {
    pub async fn publish(&self, config: &ClientConfig, batch: Vec<&Message>) -> Vec<Published> {
        let topics: Vec<String> = batch.iter().map(|m| topic_name(&m.topic)).collect();
        let (producer, missing) = match self.prepare(config, &topics).await {
            Ok(prepared) => prepared,
            Err(error) => {
                let failure = unavailable_failure(NAME, &error);
                return vec![Published::Unavailable(failure); batch.len()];
            }
        };
        // All messages are queued before the first is awaited: the library sends them together.
        let sends: Vec<Sending> = batch
            .iter()
            .zip(&topics)
            .map(|(message, topic)| {
                if missing.contains(topic) {
                    return Sending::Finished(Published::Unroutable);
                }
                send(&producer, topic, message)
            })
            .collect();
        let mut answers = Vec::with_capacity(sends.len());
        for send in sends {
            answers.push(send.answer().await);
        }
        for (topic, answer) in topics.iter().zip(&answers) {
            if *answer == Published::Unroutable {
                self.lock_known().remove(topic);
            }
        }
        answers
    }

    /// The producer, and which of these topics don't exist.
    async fn prepare(
        &self,
        config: &ClientConfig,
        topics: &[String],
    ) -> Result<(FutureProducer, HashSet<String>), Cause> {
        let producer = self.producer(config)?;
        let mut backoff = Backoff::within(METADATA_TIMEOUT);
        loop {
            match self.missing(&producer, topics).await {
                Ok(missing) => return Ok((producer, missing)),
                // A topic that was just created has no leader yet.
                Err(error) => {
                    let error = classify(error);
                    if !error.is_transient() || !backoff.wait().await {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    fn producer(&self, config: &ClientConfig) -> Result<FutureProducer, KafkaError> {
        let mut slot = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some(producer) if producer.client().fatal_error().is_none() => Ok(producer.clone()),
            _ => {
                let mut config = config.clone();
                let timeout = REQUEST_TIMEOUT.as_millis().to_string();
                let settings = [
                    ("enable.idempotence", "true"),
                    ("acks", "all"),
                    ("message.timeout.ms", &timeout),
                    ("message.max.bytes", MAX_MESSAGE_BYTES),
                    ("queue.buffering.max.kbytes", "65536"),
                    ("partitioner", "murmur2_random"),
                    ("topic.metadata.propagation.max.ms", "2000"),
                ];
                for (name, value) in settings {
                    config.set(name, value);
                }
                if config.get("linger.ms").is_none() {
                    // A batch is queued in one go; waiting for more only adds latency.
                    config.set("linger.ms", "1");
                }
                Ok(slot.insert(config.create()?).clone())
            }
        }
    }

    /// Which of these topics don't exist. The brokers are asked once for each that does.
    async fn missing(
        &self,
        producer: &FutureProducer,
        topics: &[String],
    ) -> Result<HashSet<String>, Cause> {
        let unknown: HashSet<String> = {
            let known = self.lock_known();
            let unknown = topics.iter().filter(|topic| !known.contains(*topic));
            unknown.cloned().collect()
        };
        if unknown.is_empty() {
            return Ok(unknown);
        }
        let producer = producer.clone();
        let find = move || -> Result<(HashSet<String>, HashSet<String>), KafkaError> {
            let (mut existing, mut missing) = (HashSet::new(), HashSet::new());
            for topic in unknown {
                let client = producer.client();
                let metadata = client.fetch_metadata(Some(&topic), METADATA_TIMEOUT)?;
                let found = metadata.topics().iter().find(|found| found.name() == topic);
                match found.map(|found| (found.error(), found.partitions().is_empty())) {
                    Some((None, false)) => {
                        existing.insert(topic);
                    }
                    None
                    | Some((Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART), _)) => {
                        missing.insert(topic);
                    }
                    // Being created, or without a leader.
                    Some((error, _)) => {
                        let code = error.map_or(RDKafkaErrorCode::LeaderNotAvailable, Into::into);
                        return Err(KafkaError::MetadataFetch(code));
                    }
                }
            }
            Ok((existing, missing))
        };
        let (existing, missing) = tokio::task::spawn_blocking(find).await??;
        self.lock_known().extend(existing);
        Ok(missing)
    }

    fn lock_known(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Sending {
    Finished(Published),
    InFlight(DeliveryFuture),
}

fn send(producer: &FutureProducer, topic: &str, message: &Message) -> Sending {
    let id = message.id.to_string();
    let mut headers = OwnedHeaders::new().insert(Header {
        key: ID,
        value: Some(&id),
    });
    for (name, value) in encode_headers(message) {
        headers = headers.insert(Header {
            key: &name,
            value: Some(&value),
        });
    }
    let mut record: FutureRecord<'_, str, str> = FutureRecord::to(topic)
        .payload(&*message.payload)
        .headers(headers);
    if let Some(key) = &message.key {
        record = record.key(&**key);
    }
    match producer.send_result(record) {
        Ok(delivery) => Sending::InFlight(delivery),
        Err((error, _)) => Sending::Finished(publish_error(&error)),
    }
}

impl Sending {
    async fn answer(self) -> Published {
        match self {
            Self::Finished(answer) => answer,
            Self::InFlight(delivery) => match delivery.await {
                Ok(Ok(_)) => Published::Confirmed,
                Ok(Err((error, _))) => publish_error(&error),
                Err(_) => {
                    Published::Unavailable(unavailable_failure(NAME, &"the producer was closed"))
                }
            },
        }
    }
}
