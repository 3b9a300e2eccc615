//! Publishing: idempotent, confirmed by all in-sync replicas.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider::transport::{Message, Published};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer};
use rdkafka::{ClientConfig, types::RDKafkaRespErr};

use super::{ANSWER, MOST_BYTES, NAME, name};
use crate::broker::{Cause, ID, away, fields, refused};

/// How long the brokers are asked whether a topic exists.
const LOOK: Duration = Duration::from_secs(5);

/// A producer that is made when it is needed, and made anew after an error that it can't get over.
#[derive(Default)]
pub(super) struct Sender {
    producer: Mutex<Option<FutureProducer>>,
    /// Topics that exist, by Kafka's name. One that is deleted is found out by publishing to it.
    known: Mutex<HashSet<String>>,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl Sender {
    pub async fn publish(&self, config: &ClientConfig, batch: Vec<&Message>) -> Vec<Published> {
        let producer = match self.producer(config) {
            Ok(producer) => producer,
            Err(error) => {
                let failure = away(NAME, &error);
                return vec![Published::Unavailable(failure); batch.len()];
            }
        };
        let topics: Vec<String> = batch.iter().map(|message| name(&message.topic)).collect();
        let missing = match self.missing(&producer, &topics).await {
            Ok(missing) => missing,
            Err(error) => {
                let failure = away(NAME, &error);
                return vec![Published::Unavailable(failure); batch.len()];
            }
        };
        // All are handed over before the first is waited for: the library sends them together.
        let sent: Vec<Sent> = batch
            .iter()
            .zip(&topics)
            .map(|(message, topic)| {
                if missing.contains(topic) {
                    return Sent::Not(Published::Unroutable);
                }
                send(&producer, topic, message)
            })
            .collect();
        // One after the other: all are under way, and none is waited for longer than the slowest.
        let mut answers = Vec::with_capacity(sent.len());
        for one in sent {
            answers.push(one.answer().await);
        }
        for (topic, answer) in topics.iter().zip(&answers) {
            if *answer == Published::Unroutable {
                self.lock_known().remove(topic);
            }
        }
        answers
    }

    fn producer(&self, config: &ClientConfig) -> Result<FutureProducer, KafkaError> {
        let mut slot = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some(producer) if producer.client().fatal_error().is_none() => Ok(producer.clone()),
            _ => {
                let mut config = config.clone();
                let timeout = ANSWER.as_millis().to_string();
                let ours = [
                    ("enable.idempotence", "true"),
                    ("acks", "all"),
                    ("message.timeout.ms", &timeout),
                    ("message.max.bytes", MOST_BYTES),
                    ("queue.buffering.max.kbytes", "65536"),
                    ("partitioner", "murmur2_random"),
                    ("topic.metadata.propagation.max.ms", "2000"),
                ];
                for (name, value) in ours {
                    config.set(name, value);
                }
                if config.get("linger.ms").is_none() {
                    // A batch is handed over at once; waiting for more would only cost time.
                    config.set("linger.ms", "1");
                }
                Ok(slot.insert(config.create()?).clone())
            }
        }
    }

    /// Which of these topics do not exist? Asked of the brokers once for each that does.
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
        let look = move || -> Result<(HashSet<String>, HashSet<String>), KafkaError> {
            let (mut here, mut missing) = (HashSet::new(), HashSet::new());
            for topic in unknown {
                let metadata = producer.client().fetch_metadata(Some(&topic), LOOK)?;
                let found = metadata.topics().iter().find(|found| found.name() == topic);
                match found.map(|found| (found.error(), found.partitions().is_empty())) {
                    Some((None, false)) => {
                        here.insert(topic);
                    }
                    None
                    | Some((Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART), _)) => {
                        missing.insert(topic);
                    }
                    // Just being made, or without a leader.
                    Some((error, _)) => {
                        let code = error.map_or(RDKafkaErrorCode::LeaderNotAvailable, Into::into);
                        return Err(KafkaError::MetadataFetch(code));
                    }
                }
            }
            Ok((here, missing))
        };
        let (here, missing) = tokio::task::spawn_blocking(look).await??;
        self.lock_known().extend(here);
        Ok(missing)
    }

    fn lock_known(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Sent {
    Not(Published),
    Waits(DeliveryFuture),
}

fn send(producer: &FutureProducer, topic: &str, message: &Message) -> Sent {
    let id = message.id.to_string();
    let mut headers = OwnedHeaders::new().insert(Header {
        key: ID,
        value: Some(&id),
    });
    for (name, value) in fields(message) {
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
        Ok(waits) => Sent::Waits(waits),
        Err((error, _)) => Sent::Not(judge(&error)),
    }
}

impl Sent {
    async fn answer(self) -> Published {
        match self {
            Self::Not(answer) => answer,
            Self::Waits(delivery) => match delivery.await {
                Ok(Ok(_)) => Published::Confirmed,
                Ok(Err((error, _))) => judge(&error),
                Err(_) => Published::Unavailable(away(NAME, &"the producer was closed")),
            },
        }
    }
}

fn judge(error: &KafkaError) -> Published {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownPartition,
        ) => Published::Unroutable,
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidMessageSize
            | RDKafkaErrorCode::InvalidRecord
            | RDKafkaErrorCode::PolicyViolation,
        ) => Published::Failed(refused(NAME, error)),
        _ => Published::Unavailable(away(NAME, error)),
    }
}
