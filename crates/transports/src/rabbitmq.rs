//! RabbitMQ.
//!
//! All messages go to one direct exchange, `postrider`, with the topic as routing key. A group is a durable queue,
//! `postrider.<group>`, bound to its topics; with more than one replica it's a quorum queue. Publishing is mandatory and
//! confirmed: a message is stored when the broker has acknowledged it *and* has not returned it. The queue has a single
//! active consumer, which keeps its order; another takes over when that one is gone.

mod connection;
mod error;
mod source;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, ExchangeKind};
use postrider::transport::{Message, Published, TransportError};

use crate::PostgresTransport;
use crate::broker::{
    Broker, BrokerTransport, Cause, KEY, Options, Source, encode_headers, unavailable_failure,
};
use connection::LazyConnection;
use error::{classify, is_missing};
use source::RabbitSource;

/// The transport's name in configuration and metrics.
pub const NAME: &str = "rabbitmq";

const EXCHANGE: &str = "postrider";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Newer servers drop a message after some redeliveries. For us that would be a loss: the database counts attempts.
const DELIVERY_LIMIT: i64 = 1_000_000_000;
/// Delivery mode: stored on disk.
const PERSISTENT: u8 = 2;

/// A transport over the RabbitMQ server at this URL (`amqp://user:password@host:port/vhost`). It connects at the first use.
#[must_use]
pub fn transport(
    url: &str,
    replicas: usize,
    local: PostgresTransport,
    options: Options,
) -> BrokerTransport {
    let broker = RabbitMq {
        publishing: LazyConnection::new(url, "postrider publisher"),
        consuming: LazyConnection::new(url, "postrider intake"),
        channels: Mutex::default(),
        declare: options.declare,
        replicas,
    };
    BrokerTransport::new(broker, local, options)
}

#[derive(Debug)]
struct RabbitMq {
    publishing: LazyConnection,
    /// Separate: a server that is short of memory blocks connections that publish.
    consuming: LazyConnection,
    /// Idle channels for publishing.
    channels: Mutex<Vec<Channel>>,
    declare: bool,
    replicas: usize,
}

/// Why this URL is invalid, as far as that shows without a server.
#[must_use]
pub fn url_error(url: &str) -> Option<String> {
    url.parse::<lapin::uri::AMQPUri>().err()
}

fn queue_name(group: &str) -> String {
    format!("postrider.{group}")
}

/// The arguments of a group's queue.
fn queue_arguments(replicas: usize) -> FieldTable {
    let mut arguments = FieldTable::default();
    let single = AMQPValue::Boolean(true);
    arguments.insert("x-single-active-consumer".into(), single);
    if replicas > 1 {
        let size = i64::try_from(replicas).unwrap_or(i64::MAX);
        arguments.insert(
            "x-queue-type".into(),
            AMQPValue::LongString("quorum".into()),
        );
        arguments.insert(
            "x-quorum-initial-group-size".into(),
            AMQPValue::LongLongInt(size),
        );
        arguments.insert(
            "x-delivery-limit".into(),
            AMQPValue::LongLongInt(DELIVERY_LIMIT),
        );
    }
    arguments
}

async fn declare_exchange(channel: &Channel) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions {
        durable: true,
        ..ExchangeDeclareOptions::default()
    };
    let (kind, arguments) = (ExchangeKind::Direct, FieldTable::default());
    channel
        .exchange_declare(EXCHANGE.into(), kind, options, arguments)
        .await
}

/// Creates the group's queue and binds it to its topics, unless they exist.
async fn declare_queue(
    channel: &Channel,
    group: &str,
    topics: &[String],
    replicas: usize,
) -> lapin::Result<()> {
    declare_exchange(channel).await?;
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare(queue_name(group).into(), options, queue_arguments(replicas))
        .await?;
    for topic in topics {
        channel
            .queue_bind(
                queue_name(group).into(),
                EXCHANGE.into(),
                topic.as_str().into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await?;
    }
    Ok(())
}

impl RabbitMq {
    async fn declare(&self, topic: &str, group: &str) -> Result<(), Cause> {
        let channel = self.consuming.channel().await?;
        declare_queue(&channel, group, &[topic.to_owned()], self.replicas).await?;
        // Optional: the channel ends with the connection.
        let _ = channel.close(200, "declared".into()).await;
        Ok(())
    }

    /// A channel for this call alone: the client attaches a returned message to whichever confirmation comes next, so returns
    /// can be matched by id only among the messages of one call.
    async fn channel(&self) -> Result<Channel, Cause> {
        let idle = {
            let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
            channels.retain(|channel| channel.status().connected());
            channels.pop()
        };
        if let Some(channel) = idle {
            return Ok(channel);
        }
        let channel = self.publishing.channel().await?;
        if self.declare {
            declare_exchange(&channel).await?;
        }
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await?;
        Ok(channel)
    }

    async fn publish(&self, batch: &[&Message]) -> Result<Vec<Published>, Cause> {
        let channel = self.channel().await?;
        let mut confirmations = Vec::with_capacity(batch.len());
        for message in batch {
            let options = BasicPublishOptions {
                mandatory: true,
                ..BasicPublishOptions::default()
            };
            let publishing = channel.basic_publish(
                EXCHANGE.into(),
                (&*message.topic).into(),
                options,
                message.payload.as_bytes(),
                properties(message),
            );
            confirmations.push(publishing.await?);
        }
        let confirmations = match try_join_all(confirmations).await {
            Ok(confirmations) => confirmations,
            Err(error) if is_missing(&error) => {
                return Ok(vec![Published::Unroutable; batch.len()]);
            }
            Err(error) => return Err(error.into()),
        };
        let mut returned = HashSet::new();
        let mut acknowledged = Vec::with_capacity(batch.len());
        for confirmation in confirmations {
            acknowledged.push(confirmation.is_ack());
            if let Confirmation::Ack(Some(message)) | Confirmation::Nack(Some(message)) =
                confirmation
            {
                let id = message.delivery.properties.message_id();
                returned.extend(id.as_ref().map(ToString::to_string));
            }
        }
        let answer = |(message, acknowledged): (&&Message, bool)| {
            if returned.contains(&message.id.to_string()) {
                Published::Unroutable
            } else if acknowledged {
                Published::Confirmed
            } else {
                Published::Unavailable(unavailable_failure(NAME, &"the broker could not store it"))
            }
        };
        let answers = batch.iter().zip(acknowledged).map(answer).collect();
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.push(channel);
        Ok(answers)
    }
}

fn properties(message: &Message) -> BasicProperties {
    let mut headers = FieldTable::default();
    let mut fields = encode_headers(message);
    if let Some(key) = &message.key {
        fields.push((KEY.to_owned(), serde_json::Value::from(&**key).to_string()));
    }
    for (name, value) in fields {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    BasicProperties::default()
        .with_message_id(message.id.to_string().into())
        .with_content_type("application/json".into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers)
}

impl Broker for RabbitMq {
    fn name(&self) -> &'static str {
        NAME
    }

    fn publish<'a>(&'a self, batch: Vec<&'a Message>) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(async move {
            if batch.is_empty() {
                return Vec::new();
            }
            let count = batch.len();
            let published = tokio::time::timeout(REQUEST_TIMEOUT, self.publish(&batch)).await;
            let published = published.unwrap_or_else(|_| {
                Err(format!("no confirmation within {REQUEST_TIMEOUT:?}").into())
            });
            published.unwrap_or_else(|error| {
                vec![Published::Unavailable(unavailable_failure(NAME, &error)); count]
            })
        })
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
        _others: &'a [String],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let declared = tokio::time::timeout(REQUEST_TIMEOUT, self.declare(topic, group)).await;
            let declared = declared
                .unwrap_or_else(|_| Err(format!("no answer within {REQUEST_TIMEOUT:?}").into()));
            declared.map_err(classify)
        })
    }

    fn sources(&self, group: &str, topics: &[String]) -> Vec<Box<dyn Source>> {
        let declared = self.declare.then_some(self.replicas);
        let connection = self.consuming.clone();
        vec![Box::new(RabbitSource::new(
            connection, group, topics, declared,
        ))]
    }
}
