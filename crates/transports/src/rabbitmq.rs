//! RabbitMQ.
//!
//! All messages go to one direct exchange, `postrider`, with the topic as routing key; a group is a durable queue,
//! `postrider.<group>`, bound to its topics: a quorum queue where more than one copy is wanted. Publishing is mandatory and confirmed: a message is stored when the broker has
//! acknowledged it *and* has not returned it. The queue has a single active consumer, so that its order is kept; another
//! takes over when that one is gone.

mod link;
mod source;

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, try_join_all};
use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, ErrorKind, ExchangeKind};
use postrider::transport::{Message, Published, TransportError};

use crate::PostgresTransport;
use crate::broker::{Broker, BrokerTransport, Cause, KEY, Options, Source, away, fields};
use link::Link;
use source::RabbitSource;

/// The transport's name in configuration and metrics.
pub const NAME: &str = "rabbitmq";

const EXCHANGE: &str = "postrider";
/// Longer than this a confirmation is not waited for.
const ANSWER: Duration = Duration::from_secs(10);
/// Newer servers give up a message after some redeliveries, which for us would be a loss; ours are counted elsewhere.
const DELIVERY_LIMIT: i64 = 1_000_000_000;
/// On disk.
const PERSISTENT: u8 = 2;

/// A transport through the RabbitMQ server at this address (`amqp://user:password@host:port/vhost`). It connects when it
/// is first used.
#[must_use]
pub fn transport(
    url: &str,
    replicas: usize,
    local: PostgresTransport,
    options: Options,
) -> BrokerTransport {
    let broker = RabbitMq {
        sending: Link::new(url, "postrider publisher"),
        receiving: Link::new(url, "postrider intake"),
        channels: Mutex::default(),
        declare: options.declare,
        replicas,
    };
    BrokerTransport::new(broker, local, options)
}

#[derive(Debug)]
struct RabbitMq {
    sending: Link,
    /// Of its own: a server that is short of memory holds up connections that publish.
    receiving: Link,
    /// Channels for publishing that nobody uses just now.
    channels: Mutex<Vec<Channel>>,
    declare: bool,
    replicas: usize,
}

fn unavailable(source: impl Into<Cause>) -> TransportError {
    let (transport, source) = (NAME, source.into());
    if source.downcast_ref().is_some_and(is_refusal) {
        return TransportError::Refused { transport, source };
    }
    TransportError::Unavailable { transport, source }
}

/// The queue is there in another form, or we may not use it: somebody has to change something.
fn is_refusal(error: &lapin::Error) -> bool {
    use AMQPSoftError::{ACCESSREFUSED, PRECONDITIONFAILED};
    matches!(error.kind(), ErrorKind::ProtocolError(error)
        if [ACCESSREFUSED, PRECONDITIONFAILED].map(AMQPErrorKind::Soft).contains(error.kind()))
}

fn queue(group: &str) -> String {
    format!("postrider.{group}")
}

/// Of a group's queue.
fn arguments(replicas: usize) -> FieldTable {
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

/// The group's queue, bound to its topics. What is there already stays as it is.
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
        .queue_declare(queue(group).into(), options, arguments(replicas))
        .await?;
    for topic in topics {
        channel
            .queue_bind(
                queue(group).into(),
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
        let channel = self.receiving.channel().await?;
        declare_queue(&channel, group, &[topic.to_owned()], self.replicas).await?;
        // Only to be tidy: it ends with the connection.
        let _ = channel.close(200, "declared".into()).await;
        Ok(())
    }

    /// A channel that is this call's alone: the client hands a returned message to whichever confirmation comes next, so
    /// that returns can be told apart by their ids only among messages of the same call.
    async fn channel(&self) -> Result<Channel, Cause> {
        let idle = {
            let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
            channels.retain(|channel| channel.status().connected());
            channels.pop()
        };
        if let Some(channel) = idle {
            return Ok(channel);
        }
        let channel = self.sending.channel().await?;
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
            Err(error) if no_exchange(&error) => {
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
                Published::Unavailable(away(NAME, &"the broker could not store it"))
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
    let mut fields = fields(message);
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

/// Nobody ever declared anything here.
fn no_exchange(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(error)
        if *error.kind() == AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
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
            let published = tokio::time::timeout(ANSWER, self.publish(&batch)).await;
            let published = published
                .unwrap_or_else(|_| Err(format!("no confirmation within {ANSWER:?}").into()));
            published
                .unwrap_or_else(|error| vec![Published::Unavailable(away(NAME, &error)); count])
        })
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
        _others: &'a [String],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let declared = tokio::time::timeout(ANSWER, self.declare(topic, group)).await;
            let declared =
                declared.unwrap_or_else(|_| Err(format!("no answer within {ANSWER:?}").into()));
            declared.map_err(unavailable)
        })
    }

    fn sources(&self, group: &str, topics: &[String]) -> Vec<Box<dyn Source>> {
        let declared = self.declare.then_some(self.replicas);
        let link = self.receiving.clone();
        vec![Box::new(RabbitSource::new(link, group, topics, declared))]
    }
}
