//! Apache Kafka.
//!
//! A topic is a topic, a group a consumer group; the ordering key is the record's key, so that a key stays in one
//! partition. The producer is idempotent and waits for all in-sync replicas. Offsets are committed after our own commit;
//! a partition whose messages wait here too long is paused. A topic that does not exist is unroutable: it is never created
//! by publishing.

mod admin;
mod produce;
mod source;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider_engine::transport::{Message, Published, TransportError};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::PostgresTransport;
use crate::outside::{Broker, Cause, Options, OutsideTransport, Source, plain};
use produce::Sender;
use source::KafkaSource;

/// The transport's name in configuration and metrics.
pub const NAME: &str = "kafka";

/// What a broker's answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// The outbox's limit, twice: for headers, and for what the format adds.
const MOST_BYTES: &str = "2097152";

/// A transport through the Kafka brokers at this address (`kafka://host:port,host:port`). It connects when it is first used.
///
/// Settings of the client library may follow after a question mark, such as `?security.protocol=…&client.rack=…`.
#[must_use]
pub fn transport(
    url: &str,
    replicas: usize,
    local: PostgresTransport,
    options: Options,
) -> OutsideTransport {
    let broker = Kafka {
        config: config(url),
        replicas: i32::try_from(replicas).ok().filter(|count| *count > 0),
        sender: Sender::default(),
        declared: Mutex::default(),
    };
    OutsideTransport::new(broker, local, options)
}

#[derive(Debug)]
struct Kafka {
    config: ClientConfig,
    /// None: as the brokers are configured.
    replicas: Option<i32>,
    sender: Sender,
    /// What is surely there: topic and group.
    declared: Mutex<HashSet<(String, String)>>,
}

/// What producers, consumers and administration share.
fn config(url: &str) -> ClientConfig {
    let rest = url.trim_start_matches("kafka://");
    let (servers, settings) = rest.split_once('?').unwrap_or((rest, ""));
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", servers.trim_end_matches('/'))
        .set("client.id", "postrider")
        .set("reconnect.backoff.max.ms", "1000")
        .set("allow.auto.create.topics", "false")
        .set_log_level(RDKafkaLogLevel::Error);
    for setting in settings.split('&') {
        if let Some((name, value)) = setting.split_once('=') {
            config.set(name, value);
        }
    }
    config
}

/// Kafka's names have neither colons nor slashes.
fn name(topic: &str) -> String {
    plain(topic, "._-")
}

fn unavailable(source: impl Into<Cause>) -> TransportError {
    TransportError::Unavailable {
        transport: NAME,
        source: source.into(),
    }
}

impl Kafka {
    async fn declare(&self, topic: &str, group: &str, others: &[String]) -> Result<(), Cause> {
        let pair = (topic.to_owned(), group.to_owned());
        {
            let declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
            if declared.contains(&pair) {
                return Ok(());
            }
        }
        admin::declare(&self.config, self.replicas, &name(topic), group, others).await?;
        let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        declared.insert(pair);
        Ok(())
    }
}

impl Broker for Kafka {
    fn name(&self) -> &'static str {
        NAME
    }

    fn publish<'a>(&'a self, batch: Vec<&'a Message>) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(self.sender.publish(&self.config, batch))
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
        others: &'a [String],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            self.declare(topic, group, others)
                .await
                .map_err(unavailable)
        })
    }

    fn sources(&self, group: &str, topics: &[String]) -> Vec<Box<dyn Source>> {
        let topics = topics.iter().map(|topic| name(topic)).collect();
        vec![Box::new(KafkaSource::new(&self.config, group, topics))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_brokers_and_settings() {
        let config = config("kafka://a:1,b:2/?client.rack=x&linger.ms=7");
        assert_eq!(config.get("bootstrap.servers"), Some("a:1,b:2"));
        assert_eq!(config.get("client.rack"), Some("x"));
        assert_eq!(config.get("linger.ms"), Some("7"));
        assert_eq!(config.get("allow.auto.create.topics"), Some("false"));
    }
}
