//! Apache Kafka.
//!
//! A topic is a Kafka topic, a group a consumer group; the ordering key is the record key, so all messages of a key are in
//! one partition. The producer is idempotent and waits for all in-sync replicas. Offsets are committed after our own commit.
//! While the backlog is full, partitions are paused. Publishing never creates a topic: a missing topic is unroutable.

mod admin;
mod error;
mod produce;
mod source;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::transport::{Message, Published, TransportError};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use crate::PostgresTransport;
use crate::broker::{Broker, BrokerTransport, Options, Source, sanitize};
use error::classify;
use produce::Producer;
use source::KafkaSource;

/// The transport's name in configuration and metrics.
pub const NAME: &str = "kafka";

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Twice the outbox's limit, to leave room for headers and encoding.
const MAX_MESSAGE_BYTES: &str = "2097152";

/// A transport over the Kafka brokers at this URL (`kafka://host:port,host:port`). It connects at the first use.
///
/// The URL's query sets options of the client library, e.g. `?client.rack=…&linger.ms=…`.
#[must_use]
pub fn transport(
    url: &str,
    replicas: usize,
    local: PostgresTransport,
    options: Options,
) -> BrokerTransport {
    let broker = Kafka {
        config: config(url),
        replicas: i32::try_from(replicas).ok().filter(|count| *count > 0),
        producer: Producer::default(),
        declared: Mutex::default(),
    };
    BrokerTransport::new(broker, local, options)
}

#[derive(Debug)]
struct Kafka {
    config: ClientConfig,
    /// None: the brokers' default.
    replicas: Option<i32>,
    producer: Producer,
    /// Topics and groups that are known to be declared.
    declared: Mutex<HashSet<(String, String)>>,
}

/// The settings that producers, consumers and admin clients share.
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

/// Why this URL is invalid, as far as the client library can tell without a broker.
#[must_use]
pub fn url_error(url: &str) -> Option<String> {
    let config = config(url);
    match config.create_native_config() {
        // Without the value, which may be a secret.
        Err(KafkaError::ClientConfig(_, reason, key, _)) => {
            return Some(format!("{key}: {reason}"));
        }
        Err(error) => return Some(error.to_string()),
        Ok(_) => {}
    }
    // The library itself reports this only at the first use.
    let mechanism = config
        .get("sasl.mechanisms")
        .or_else(|| config.get("sasl.mechanism"))?;
    (mechanism != "PLAIN").then(|| {
        "sasl.mechanism: only PLAIN is supported; this program is built without OpenSSL, which the others need".to_owned()
    })
}

/// Kafka's topic names allow neither colons nor slashes.
fn topic_name(topic: &str) -> String {
    sanitize(topic, "._-")
}

impl Kafka {
    async fn declare(
        &self,
        topic: &str,
        group: &str,
        others: &[String],
    ) -> Result<(), TransportError> {
        let pair = (topic.to_owned(), group.to_owned());
        {
            let declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
            if declared.contains(&pair) {
                return Ok(());
            }
        }
        let name = topic_name(topic);
        admin::declare(&self.config, self.replicas, &name, group, others)
            .await
            .map_err(classify)?;
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
        Box::pin(self.producer.publish(&self.config, batch))
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
        others: &'a [String],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.declare(topic, group, others))
    }

    fn sources(&self, group: &str, topics: &[String]) -> Vec<Box<dyn Source>> {
        let topics = topics.iter().map(|topic| topic_name(topic)).collect();
        vec![Box::new(KafkaSource::new(&self.config, group, topics))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_brokers_and_settings() {
        let config = config("kafka://a:1,b:2/?client.rack=x&linger.ms=7");
        assert_eq!(config.get("bootstrap.servers"), Some("a:1,b:2"));
        assert_eq!(config.get("client.rack"), Some("x"));
        assert_eq!(config.get("linger.ms"), Some("7"));
        assert_eq!(config.get("allow.auto.create.topics"), Some("false"));
    }

    #[test]
    fn unsupported_settings_are_rejected_before_connecting() {
        let with = |settings: &str| url_error(&format!("kafka://a:1?{settings}"));
        assert_eq!(with("client.rack=x"), None);
        let plain =
            "security.protocol=sasl_plaintext&sasl.mechanism=PLAIN&sasl.username=u&sasl.password=p";
        assert_eq!(with(plain), None);
        for (settings, named) in [
            ("security.protocol=ssl", "OpenSSL"),
            ("security.protocol=sasl_ssl&sasl.mechanism=PLAIN", "OpenSSL"),
            ("ssl.ca.location=/ca.pem", "ssl.ca.location"),
            (
                "security.protocol=sasl_plaintext&sasl.mechanism=SCRAM-SHA-256",
                "PLAIN",
            ),
            ("no.such.setting=1", "no.such.setting"),
        ] {
            let reason = with(settings).unwrap_or_default();
            assert!(reason.contains(named), "{settings}: {reason}");
        }
    }
}
