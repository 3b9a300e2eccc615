//! Without `declare`, a transport creates nothing at the broker and uses what exists.

use std::time::Duration;

use postrider::transport::{Message, MessageId, Published, Subscription, Transport};
use postrider_testkit::servers::Kind;
use postrider_testkit::within;
use postrider_transports::broker::Options;

use crate::brokers::{shared, transport};

const DEADLINE: Duration = Duration::from_secs(60);

async fn declares_nothing(kind: Kind) {
    let Some(shared) = shared(kind).await else {
        return;
    };
    let tag = uuid::Uuid::new_v4().simple().to_string();
    let (topic, group) = (format!("quiet.{tag}"), format!("quiet-{tag}"));
    let options = Options {
        declare: false,
        ..Options::default()
    };
    let quiet = transport(kind, &shared.url, 3, &shared.db, options);
    Transport::declare(&quiet, &topic, &group).await.unwrap();
    let id = MessageId::new(uuid::Uuid::new_v4());
    let message = Message::new(id, topic.as_str(), "1".to_owned());
    let batch = std::slice::from_ref(&message);
    let refused = Transport::publish(&quiet, batch).await;
    assert_eq!(refused, [Published::Unroutable], "it stays unroutable");

    let other = shared.transport();
    Transport::declare(&other, &topic, &group).await.unwrap();
    within(DEADLINE, "it is confirmed", async || {
        let answers = Transport::publish(&quiet, batch).await;
        if answers == [Published::Confirmed] {
            Ok(())
        } else {
            Err(answers)
        }
    })
    .await;
    let subscription = Subscription::new(&group, [&topic]).unwrap();
    let consumer = Transport::subscribe(&quiet, subscription).await.unwrap();
    let delivery = within(DEADLINE, "it came", async || {
        let wait = Duration::from_millis(500);
        let mut came = consumer.receive(10, wait).await.unwrap();
        came.pop().ok_or("nothing")
    })
    .await;
    assert_eq!(delivery.message.id, id);
    consumer.ack(delivery.receipt).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_topics_are_not_created_without_declare() {
    declares_nothing(Kind::Kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_queues_are_not_created_without_declare() {
    declares_nothing(Kind::Rabbitmq).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_streams_are_not_created_without_declare() {
    declares_nothing(Kind::Nats).await;
}
