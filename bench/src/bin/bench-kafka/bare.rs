//! The bare producer: rdkafka's fastest, fed from memory, which only counts its confirmations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};

use crate::TIMEOUT;

/// Confirmed and failed messages.
#[derive(Clone, Default)]
pub struct Counts(Arc<[AtomicU64; 2]>);

impl ClientContext for Counts {}

impl ProducerContext for Counts {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.0[usize::from(result.is_err())].fetch_add(1, Relaxed);
    }
}

pub fn producer(broker: &str) -> Result<ThreadedProducer<Counts>> {
    let producer: ThreadedProducer<Counts> = ClientConfig::new()
        .set("bootstrap.servers", broker.trim_start_matches("kafka://"))
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .create_with_context(Counts::default())?;
    // Connected before the clock starts.
    producer
        .client()
        .fetch_metadata(None, Duration::from_secs(10))?;
    Ok(producer)
}

/// Sends all messages with the publisher's headers; returns the seconds until the last was confirmed.
pub fn run(producer: &ThreadedProducer<Counts>, topic: &str, payloads: &[String]) -> Result<f64> {
    let begun = Instant::now();
    for payload in payloads {
        let id = uuid::Uuid::new_v4().to_string();
        let headers = OwnedHeaders::new()
            .insert(Header {
                key: "message-id",
                value: Some(&id),
            })
            .insert(Header {
                key: "postrider-topic",
                value: Some(topic),
            });
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(topic)
            .payload(payload.as_str())
            .headers(headers);
        loop {
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                    record = again;
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err((error, _)) => return Err(error.into()),
            }
        }
    }
    let counts = &producer.context().0;
    let all = payloads.len() as u64;
    while counts[0].load(Relaxed) + counts[1].load(Relaxed) < all {
        ensure!(
            begun.elapsed() < TIMEOUT,
            "timed out before all messages were confirmed"
        );
        std::thread::sleep(Duration::from_micros(200));
    }
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(
        counts[1].load(Relaxed) == 0,
        "some messages were not confirmed"
    );
    Ok(seconds)
}
