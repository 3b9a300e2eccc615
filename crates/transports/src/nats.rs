//! NATS JetStream.
//!
//! A topic is a stream with one subject, `postrider.<topic>`, that keeps a message until every group has it; a group is a
//! durable pull consumer of it. A message is confirmed by the stream's own acknowledgement. Its id is the `Nats-Msg-Id`, by
//! which the server recognises a duplicate within its window and our inbox at any time. A subject without a stream is
//! unroutable.

mod error;
mod missed;
mod source;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, context};
use async_nats::{Client, ConnectOptions, HeaderMap, HeaderName, HeaderValue};
use futures_util::future::{BoxFuture, join_all};
use postrider::transport::{Message, Published, TransportError};

use crate::PostgresTransport;
use crate::broker::{
    Broker, BrokerTransport, Cause, KEY, Options, Source, encode_headers, sanitize,
    unavailable_failure,
};
use error::{classify, is_missing, publish_answer};
use source::NatsSource;

/// The transport's name in configuration and metrics.
pub const NAME: &str = "nats";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A batch that is not acknowledged within this time is redelivered. Committing one takes milliseconds.
const ACK_WAIT: Duration = Duration::from_secs(10);
/// Maximum number of unacknowledged messages of an intake.
const MAX_UNACKED: usize = 500;

/// A transport over the NATS servers at this URL, or several URLs separated by commas. It connects at the first use.
#[must_use]
pub fn transport(
    url: &str,
    replicas: usize,
    local: PostgresTransport,
    options: Options,
) -> BrokerTransport {
    let broker = Nats {
        client: LazyClient::new(url),
        replicas: replicas.max(1),
        declared: Mutex::default(),
    };
    BrokerTransport::new(broker, local, options)
}

#[derive(Debug)]
struct Nats {
    client: LazyClient,
    replicas: usize,
    /// Topics and groups that are known to be declared.
    declared: Mutex<HashSet<(String, String)>>,
}

/// Connects at the first use. From then on the client reconnects by itself.
#[derive(Debug, Clone)]
struct LazyClient {
    url: String,
    client: std::sync::Arc<tokio::sync::Mutex<Option<Client>>>,
}

impl LazyClient {
    fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            client: std::sync::Arc::default(),
        }
    }

    async fn context(&self) -> Result<Context, Cause> {
        let mut slot = self.client.lock().await;
        let client = match &*slot {
            Some(client) => client.clone(),
            None => {
                let servers: Vec<&str> = self.url.split(',').map(str::trim).collect();
                let options = ConnectOptions::new()
                    .name("postrider")
                    .connection_timeout(CONNECT_TIMEOUT)
                    .reconnect_delay_callback(|attempt| {
                        Duration::from_millis(
                            100 * u64::try_from(attempt.clamp(1, 20)).unwrap_or(20),
                        )
                    });
                slot.insert(options.connect(&servers[..]).await?).clone()
            }
        };
        drop(slot);
        if client.connection_state() != State::Connected {
            return Err("the connection is lost; reconnecting".into());
        }
        Ok(context::ContextBuilder::new()
            .timeout(REQUEST_TIMEOUT)
            .max_ack_inflight(10_000)
            .build(client))
    }
}

/// Why this URL is invalid, as far as that shows without a server.
#[must_use]
pub fn url_error(url: &str) -> Option<String> {
    let mut servers = url.split(',').map(str::trim);
    let error = servers.find_map(|server| server.parse::<async_nats::ServerAddr>().err());
    error.map(|error| error.to_string())
}

fn subject(topic: &str) -> String {
    let tokens = topic.split('.').all(|token| !token.is_empty());
    if tokens {
        format!("postrider.{topic}")
    } else {
        format!("postrider.{}", sanitize(topic, "_-"))
    }
}

fn stream_name(topic: &str) -> String {
    format!("postrider-{}", sanitize(topic, "_-"))
}

fn consumer_name(group: &str) -> String {
    sanitize(group, "_-")
}

impl Nats {
    async fn declare(&self, topic: &str, group: &str) -> Result<(), TransportError> {
        let pair = (topic.to_owned(), group.to_owned());
        let context = self.client.context().await.map_err(classify)?;
        let known = {
            let declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
            declared.contains(&pair)
        };
        if !known {
            self.create(&context, topic, group).await?;
            let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
            declared.insert(pair);
        }
        Ok(())
    }

    /// Creates the stream, then the consumer, then adds the subject: a stream drops messages that no consumer is interested in,
    /// so one confirmed before the consumer exists would be lost. Each step is idempotent, also when run concurrently.
    async fn create(
        &self,
        context: &Context,
        topic: &str,
        group: &str,
    ) -> Result<(), TransportError> {
        let name = stream_name(topic);
        let stream = match context.get_stream(&name).await {
            Ok(stream) => stream,
            Err(error) if is_missing(&error) => context
                .create_stream(self.config(topic, false))
                .await
                .map_err(classify)?,
            Err(error) => return Err(classify(error)),
        };
        let name = consumer_name(group);
        // A number instead of "new": a server that lost the consumer's position would start behind the waiting messages.
        let start_sequence = stream.cached_info().state.last_sequence + 1;
        let config = pull::Config {
            durable_name: Some(name.clone()),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_ack_pending: i64::try_from(4 * MAX_UNACKED).unwrap_or(i64::MAX),
            ..pull::Config::default()
        };
        stream
            .get_or_create_consumer(&name, config)
            .await
            .map_err(classify)?;
        let config = &stream.cached_info().config;
        if !config.subjects.contains(&subject(topic)) {
            context
                .update_stream(self.config(topic, true))
                .await
                .map_err(classify)?;
        }
        Ok(())
    }

    fn config(&self, topic: &str, open: bool) -> Config {
        let name = stream_name(topic);
        let subject = if open {
            subject(topic)
        } else {
            format!("postrider-closed.{name}")
        };
        Config {
            subjects: vec![subject],
            description: Some(format!("messages of {topic}")),
            name,
            retention: RetentionPolicy::Interest,
            storage: StorageType::File,
            num_replicas: self.replicas,
            ..Config::default()
        }
    }

    async fn publish(&self, batch: Vec<&Message>) -> Vec<Published> {
        let context = match self.client.context().await {
            Ok(context) => context,
            Err(error) => {
                let failure = unavailable_failure(NAME, &error);
                return vec![Published::Unavailable(failure); batch.len()];
            }
        };
        let mut sent = Vec::with_capacity(batch.len());
        for message in batch {
            let publishing = context.send_publish(subject(&message.topic), outgoing(message));
            sent.push(publishing.await);
        }
        join_all(sent.into_iter().map(async |sent| match sent {
            Ok(confirmation) => confirmation.await.map(drop),
            Err(error) => Err(error),
        }))
        .await
        .into_iter()
        .map(publish_answer)
        .collect()
    }
}

fn outgoing(message: &Message) -> PublishMessage {
    let mut headers = HeaderMap::new();
    let mut fields = encode_headers(message);
    if let Some(key) = &message.key {
        fields.push((KEY.to_owned(), serde_json::Value::from(&**key).to_string()));
    }
    for (name, value) in fields {
        // Both are valid headers already; if not, the message matters more than the header.
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.insert(name, value);
        }
    }
    PublishMessage::build()
        .headers(headers)
        .message_id(message.id.to_string())
        .payload(message.payload.as_bytes().to_vec().into())
}

impl Broker for Nats {
    fn name(&self) -> &'static str {
        NAME
    }

    fn publish<'a>(&'a self, batch: Vec<&'a Message>) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(self.publish(batch))
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
        _others: &'a [String],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.declare(topic, group))
    }

    fn sources(&self, group: &str, topics: &[String]) -> Vec<Box<dyn Source>> {
        let source = |topic: &String| -> Box<dyn Source> {
            Box::new(NatsSource::new(self.client.clone(), topic, group))
        };
        topics.iter().map(source).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_and_names_are_valid_and_distinct() {
        assert_eq!(subject("payment.requested"), "postrider.payment.requested");
        assert!(!subject("a..b").contains(".."));
        assert!(!stream_name("payment.requested").contains('.'));
        assert_ne!(stream_name("a.b"), stream_name("a:b"));
    }
}
