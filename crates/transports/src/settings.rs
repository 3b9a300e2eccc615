//! The configuration section `[transport]`.

use serde::Deserialize;
use std::fmt;
use std::sync::Arc;

use postrider::transport::Transport;

use crate::PostgresTransport;

/// The kind of transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The database itself.
    Postgres,
    /// Apache Kafka.
    Kafka,
    /// RabbitMQ.
    Rabbitmq,
    /// NATS JetStream.
    Nats,
}

/// `[transport]`
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The kind of transport.
    pub kind: Kind,
    /// URL of the broker. Empty: on this machine, at its default port.
    pub url: String,
    /// Create missing topics, exchanges, queues and streams.
    pub declare: bool,
    /// Number of replicas of each message in a cluster of brokers; 0: the broker's default.
    pub replicas: usize,
    /// Maximum number of a group's unfinished messages in the database.
    pub backlog: u32,
}

/// Omits the URL, which may contain a password.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("kind", &self.kind)
            .field("declare", &self.declare)
            .field("replicas", &self.replicas)
            .field("backlog", &self.backlog)
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// Invalid values as (key, problem).
    #[must_use]
    pub fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let schemes: &[&str] = match self.kind {
            Kind::Postgres => &[],
            Kind::Kafka => &["kafka"],
            Kind::Rabbitmq => &["amqp", "amqps"],
            Kind::Nats => &["nats", "tls"],
        };
        let has_scheme = |url: &str| {
            schemes
                .iter()
                .any(|scheme| url.starts_with(&format!("{scheme}://")))
        };
        if self.kind == Kind::Postgres {
            if !self.url.is_empty() {
                let text = "the transport postgres uses the database and has no URL; set transport.kind or leave it empty";
                found.push(("transport.url", text.to_owned()));
            }
        } else if !self.url.is_empty() && !has_scheme(&self.url) {
            let text = format!("must start with {}://", schemes.join(":// or "));
            found.push(("transport.url", text));
        }
        if let Some(reason) = self.url_error() {
            found.push(("transport.url", reason));
        }
        if let Some(feature) = self.missing_feature() {
            let text = format!(
                "this program was built without {feature}; build it with --features {feature}, or choose another transport"
            );
            found.push(("transport.kind", text));
        }
        if self.replicas > 5 {
            let text = format!("{} is not between 0 and 5", self.replicas);
            found.push(("transport.replicas", text));
        }
        if self.backlog < 100 {
            let text = format!("{} is too small; the minimum is 100", self.backlog);
            found.push(("transport.backlog", text));
        }
        found
    }

    /// What the broker's client library has against the URL.
    fn url_error(&self) -> Option<String> {
        match self.kind {
            _ if self.url.is_empty() => None,
            #[cfg(feature = "kafka")]
            Kind::Kafka => crate::kafka::url_error(&self.url),
            #[cfg(feature = "rabbitmq")]
            Kind::Rabbitmq => crate::rabbitmq::url_error(&self.url),
            #[cfg(feature = "nats")]
            Kind::Nats => crate::nats::url_error(&self.url),
            _ => None,
        }
    }

    const fn missing_feature(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Kafka if !cfg!(feature = "kafka") => Some("kafka"),
            Kind::Rabbitmq if !cfg!(feature = "rabbitmq") => Some("rabbitmq"),
            Kind::Nats if !cfg!(feature = "nats") => Some("nats"),
            _ => None,
        }
    }

    /// The configured transport, on top of the database's own. A broker connection is opened at the first use.
    #[must_use]
    pub fn open(&self, local: PostgresTransport) -> Arc<dyn Transport> {
        match self.kind {
            Kind::Postgres => Arc::new(local),
            #[cfg(feature = "kafka")]
            Kind::Kafka => {
                let url = self.url_or("kafka://127.0.0.1:9092");
                Arc::new(crate::kafka::transport(
                    url,
                    self.replicas,
                    local,
                    self.options(),
                ))
            }
            #[cfg(feature = "rabbitmq")]
            Kind::Rabbitmq => {
                let url = self.url_or("amqp://127.0.0.1:5672/%2f");
                Arc::new(crate::rabbitmq::transport(
                    url,
                    self.replicas,
                    local,
                    self.options(),
                ))
            }
            #[cfg(feature = "nats")]
            Kind::Nats => {
                let url = self.url_or("nats://127.0.0.1:4222");
                Arc::new(crate::nats::transport(
                    url,
                    self.replicas,
                    local,
                    self.options(),
                ))
            }
            // Rejected as a contradiction before.
            #[allow(unreachable_patterns, reason = "only without some feature")]
            _ => Arc::new(local),
        }
    }

    #[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "nats"))]
    fn url_or<'a>(&'a self, default: &'a str) -> &'a str {
        if self.url.is_empty() {
            default
        } else {
            &self.url
        }
    }

    #[cfg(any(feature = "kafka", feature = "rabbitmq", feature = "nats"))]
    fn options(&self) -> crate::broker::Options {
        crate::broker::Options {
            declare: self.declare,
            backlog: self.backlog,
            ..crate::broker::Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(kind: Kind, url: &str) -> Settings {
        Settings {
            kind,
            url: url.to_owned(),
            declare: true,
            replicas: 0,
            backlog: 10_000,
        }
    }

    #[test]
    fn the_kind_is_enough_and_a_url_must_match_it() {
        for kind in [Kind::Postgres, Kind::Kafka, Kind::Rabbitmq, Kind::Nats] {
            let found = settings(kind, "").contradictions();
            assert!(
                found.iter().all(|(key, _)| *key == "transport.kind"),
                "{found:?}"
            );
        }
        let wrong = [
            settings(Kind::Postgres, "nats://a:1"),
            settings(Kind::Kafka, "amqp://a:1"),
            settings(Kind::Rabbitmq, "http://a"),
        ];
        for settings in wrong {
            let found = settings.contradictions();
            assert!(
                found.iter().any(|(key, _)| *key == "transport.url"),
                "{settings:?}"
            );
        }
        assert!(!format!("{:?}", settings(Kind::Rabbitmq, "amqp://a:secret@b")).contains("secret"));
    }
}
