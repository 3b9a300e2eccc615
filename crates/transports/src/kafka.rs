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
use postrider::transport::{Message, Published, TransportError};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use crate::PostgresTransport;
use crate::broker::{Broker, BrokerTransport, Cause, Options, Source, plain};
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
/// Settings of the client library may follow after a question mark, such as `?client.rack=…&linger.ms=…`.
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
        sender: Sender::default(),
        declared: Mutex::default(),
    };
    BrokerTransport::new(broker, local, options)
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

/// Why nobody can use this address, as far as that shows without a broker.
#[must_use]
pub fn unusable(url: &str) -> Option<String> {
    let config = config(url);
    match config.create_native_config() {
        // Not the value: it may be a secret.
        Err(KafkaError::ClientConfig(_, why, key, _)) => return Some(format!("{key}: {why}")),
        Err(error) => return Some(error.to_string()),
        Ok(_) => {}
    }
    // The library itself would only say so when it is first used.
    let mechanism = config
        .get("sasl.mechanisms")
        .or_else(|| config.get("sasl.mechanism"))?;
    (mechanism != "PLAIN").then(|| {
        "sasl.mechanism: only PLAIN is built in; the others need OpenSSL, which is not".to_owned()
    })
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

    #[test]
    fn what_the_library_can_not_do_is_refused_before_it_is_used() {
        let with = |settings: &str| unusable(&format!("kafka://a:1?{settings}"));
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
            let why = with(settings).unwrap_or_default();
            assert!(why.contains(named), "{settings}: {why}");
        }
    }
}
