//! Other senders: the brokers' own clients, without our headers, ids or JSON.

use std::time::Duration;

use postrider_testkit::servers::Kind;
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};

/// Publishes this body as any client could.
pub async fn publish(kind: Kind, url: &str, topic: &str, body: &[u8]) {
    match kind {
        Kind::Nats => {
            let client = async_nats::connect(url).await.unwrap();
            let context = async_nats::jetstream::new(client);
            let subject = format!("postrider.{topic}");
            let sent = context.publish(subject, body.to_vec().into()).await;
            sent.unwrap().await.unwrap();
        }
        Kind::Rabbitmq => {
            let properties = lapin::ConnectionProperties::default();
            let connection = lapin::Connection::connect(url, properties).await.unwrap();
            let channel = connection.create_channel().await.unwrap();
            let options = lapin::options::ConfirmSelectOptions::default();
            channel.confirm_select(options).await.unwrap();
            let sent = channel.basic_publish(
                "postrider".into(),
                topic.into(),
                lapin::options::BasicPublishOptions::default(),
                body,
                lapin::BasicProperties::default(),
            );
            sent.await.unwrap().await.unwrap();
        }
        Kind::Kafka => {
            let servers = url.trim_start_matches("kafka://");
            let producer: FutureProducer = ClientConfig::new()
                .set("bootstrap.servers", servers)
                .create()
                .unwrap();
            let record: FutureRecord<'_, (), [u8]> = FutureRecord::to(topic).payload(body);
            producer
                .send(record, Duration::from_secs(10))
                .await
                .unwrap();
        }
    }
}

/// Deletes a queue, as an operator might.
pub async fn delete_queue(url: &str, queue: &str) {
    let properties = lapin::ConnectionProperties::default();
    let connection = lapin::Connection::connect(url, properties).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let options = lapin::options::QueueDeleteOptions::default();
    channel.queue_delete(queue.into(), options).await.unwrap();
}
