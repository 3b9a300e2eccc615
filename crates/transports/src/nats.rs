//! NATS JetStream.
//!
//! A topic is a stream with one subject, `postrider.<topic>`, that keeps a message until every group has it; a group is a durable
//! pull consumer of it. A message is confirmed by the stream's own acknowledgement; its id is the `Nats-Msg-Id`, by which
//! the server recognises a repeat within its window and our inbox at any time. A subject without a stream is unroutable.

mod residue;
mod source;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::context::{GetStreamErrorKind, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode, context};
use async_nats::{Client, ConnectOptions, HeaderMap, HeaderName, HeaderValue};
use futures_util::future::{BoxFuture, join_all};
use postrider::transport::{Message, Published, TransportError};

use crate::PostgresTransport;
use crate::broker::{
    Broker, BrokerTransport, Cause, KEY, Options, Source, away, fields, plain, refused,
};
use source::NatsSource;

/// The transport's name in configuration and metrics.
pub const NAME: &str = "nats";

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);
/// A batch that was pulled and not acknowledged for this long comes again. Committing one takes a moment.
const ACK_WAIT: Duration = Duration::from_secs(10);
/// At most so many messages are in our hands unacknowledged.
const MOST: usize = 500;

/// A transport through the NATS servers at this address (several with commas between them). It connects when it is first used.
#[must_use]
pub fn transport(
    url: &str,
    replicas: usize,
    local: PostgresTransport,
    options: Options,
) -> BrokerTransport {
    let broker = Nats {
        link: Link::new(url),
        replicas: replicas.max(1),
        declared: Mutex::default(),
    };
    BrokerTransport::new(broker, local, options)
}

#[derive(Debug)]
struct Nats {
    link: Link,
    replicas: usize,
    /// What is surely there: topic and group.
    declared: Mutex<HashSet<(String, String)>>,
}

/// A connection that is made when it is needed. Once made, the client keeps it up by itself.
#[derive(Debug, Clone)]
struct Link {
    url: String,
    client: std::sync::Arc<tokio::sync::Mutex<Option<Client>>>,
}

impl Link {
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
                    .connection_timeout(CONNECT)
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
            return Err("the connection is lost; it is being made anew".into());
        }
        Ok(context::ContextBuilder::new()
            .timeout(ANSWER)
            .max_ack_inflight(10_000)
            .build(client))
    }
}

fn unavailable(source: impl Into<Cause>) -> TransportError {
    TransportError::Unavailable {
        transport: NAME,
        source: source.into(),
    }
}

fn subject(topic: &str) -> String {
    let tokens = topic.split('.').all(|token| !token.is_empty());
    if tokens {
        format!("postrider.{topic}")
    } else {
        format!("postrider.{}", plain(topic, "_-"))
    }
}

fn stream_name(topic: &str) -> String {
    format!("postrider-{}", plain(topic, "_-"))
}

fn consumer_name(group: &str) -> String {
    plain(group, "_-")
}

impl Nats {
    async fn declare(&self, topic: &str, group: &str) -> Result<(), TransportError> {
        let pair = (topic.to_owned(), group.to_owned());
        let context = self.link.context().await.map_err(unavailable)?;
        let known = {
            let declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
            declared.contains(&pair)
        };
        if !known {
            self.make(&context, topic, group).await?;
            let mut declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
            declared.insert(pair);
        }
        Ok(())
    }

    /// Stream, consumer, then the stream's subject: a message that is confirmed in between would be nobody's, and a stream
    /// that keeps what its consumers want would drop it. Each step may be repeated, also by two at once.
    async fn make(
        &self,
        context: &Context,
        topic: &str,
        group: &str,
    ) -> Result<(), TransportError> {
        let name = stream_name(topic);
        let stream = match context.get_stream(&name).await {
            Ok(stream) => stream,
            Err(error) if is_missing(&error.kind()) => context
                .create_stream(self.config(topic, false))
                .await
                .map_err(unavailable)?,
            Err(error) => return Err(unavailable(error)),
        };
        let name = consumer_name(group);
        // A number, where "new" would do: a server that lost a consumer's place would begin anew behind what is waiting.
        let start_sequence = stream.cached_info().state.last_sequence + 1;
        let wanted = pull::Config {
            durable_name: Some(name.clone()),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
            ack_policy: AckPolicy::Explicit,
            ack_wait: ACK_WAIT,
            max_ack_pending: i64::try_from(4 * MOST).unwrap_or(i64::MAX),
            ..pull::Config::default()
        };
        stream
            .get_or_create_consumer(&name, wanted)
            .await
            .map_err(unavailable)?;
        let config = &stream.cached_info().config;
        if !config.subjects.contains(&subject(topic)) {
            context
                .update_stream(self.config(topic, true))
                .await
                .map_err(unavailable)?;
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
        let context = match self.link.context().await {
            Ok(context) => context,
            Err(error) => {
                let failure = away(NAME, &error);
                return vec![Published::Unavailable(failure); batch.len()];
            }
        };
        let mut sent = Vec::with_capacity(batch.len());
        for message in batch {
            let publishing = context.send_publish(subject(&message.topic), envelope(message));
            sent.push(publishing.await);
        }
        join_all(sent.into_iter().map(async |sent| match sent {
            Ok(confirmation) => confirmation.await.map(drop),
            Err(error) => Err(error),
        }))
        .await
        .into_iter()
        .map(answer)
        .collect()
    }
}

fn envelope(message: &Message) -> PublishMessage {
    let mut headers = HeaderMap::new();
    let mut fields = fields(message);
    if let Some(key) = &message.key {
        fields.push((KEY.to_owned(), serde_json::Value::from(&**key).to_string()));
    }
    for (name, value) in fields {
        // Both are without what a header can't carry; were it otherwise, the message matters more.
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            headers.insert(name, value);
        }
    }
    PublishMessage::build()
        .headers(headers)
        .message_id(message.id.to_string())
        .payload(message.payload.as_bytes().to_vec().into())
}

fn answer(result: Result<(), PublishError>) -> Published {
    let Err(error) = result else {
        return Published::Confirmed;
    };
    match error.kind() {
        PublishErrorKind::StreamNotFound => Published::Unroutable,
        PublishErrorKind::MaxPayloadExceeded => {
            let text = format!("larger than the server's max_payload: {error}");
            Published::Failed(refused(NAME, &text))
        }
        _ => Published::Unavailable(away(NAME, &error)),
    }
}

fn is_missing(kind: &GetStreamErrorKind) -> bool {
    matches!(kind, GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
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
            Box::new(NatsSource::new(self.link.clone(), topic, group))
        };
        topics.iter().map(source).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_and_names_fit_the_server() {
        assert_eq!(subject("payment.requested"), "postrider.payment.requested");
        assert!(!subject("a..b").contains(".."));
        assert!(!stream_name("payment.requested").contains('.'));
        assert_ne!(stream_name("a.b"), stream_name("a:b"));
    }
}
