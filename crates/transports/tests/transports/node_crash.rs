//! RabbitMQ: confirmed messages survive a crash of the node, in classic and quorum queues.

use std::collections::BTreeSet;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};
use postrider::transport::{Consumer, Message, MessageId, Published, Subscription, Transport};
use postrider_testkit::servers::Kind;
use postrider_testkit::within;
use postrider_transports::broker::Options;

use crate::brokers::transport;
use crate::support::database;

const DEADLINE: Duration = Duration::from_secs(90);
const ALL: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_messages_in_rabbitmq_classic_queues_survive_a_crash() {
    confirmed_messages_survive_a_crash(1, "classic").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_messages_in_rabbitmq_quorum_queues_survive_a_crash() {
    confirmed_messages_survive_a_crash(2, "quorum").await;
}

/// Nothing is consumed before the crash: only the broker has the messages.
async fn confirmed_messages_survive_a_crash(replicas: usize, kind: &str) {
    let Some(server) = Kind::Rabbitmq.exclusive().await else {
        return;
    };
    let db = database().await;
    let tag = uuid::Uuid::new_v4().simple().to_string();
    let (topic, group) = (format!("crash.{tag}"), format!("crash-{tag}"));
    let options = Options::default();
    let here = transport(Kind::Rabbitmq, server.url(), replicas, &db, options);
    here.declare(&topic, &group).await.unwrap();
    assert_eq!(queue_kind(server.url(), &group).await, kind);
    if kind == "quorum" {
        // The server saves the names of new quorum queues only minutes later, or at an orderly shutdown.
        server.stop().await;
        server.start().await;
    }
    let messages: Vec<Message> = (0..ALL)
        .map(|n| {
            let id = MessageId::new(uuid::Uuid::new_v4());
            Message::new(id, topic.as_str(), n.to_string())
        })
        .collect();
    within(DEADLINE, "all are confirmed", async || {
        let answers = Transport::publish(&here, &messages).await;
        let confirmed = |answer: &Published| *answer == Published::Confirmed;
        if answers.iter().all(confirmed) {
            Ok(())
        } else {
            Err(answers)
        }
    })
    .await;
    server.kill().await;
    server.start().await;

    let subscription = Subscription::new(&group, [&topic]).unwrap();
    let consumer = within(DEADLINE, "the queue is back", async || {
        here.subscribe(subscription.clone()).await
    })
    .await;
    assert_eq!(
        drain(&*consumer).await,
        (0..ALL).map(|n| n.to_string()).collect()
    );
}

async fn drain(consumer: &dyn Consumer) -> BTreeSet<String> {
    let mut came = BTreeSet::new();
    within(DEADLINE, "all came", async || {
        let wait = Duration::from_millis(500);
        for delivery in consumer.receive(100, wait).await.unwrap() {
            came.insert(delivery.message.payload.to_string());
            consumer.ack(delivery.receipt).await.unwrap();
        }
        if came.len() >= ALL {
            Ok(())
        } else {
            Err(came.len())
        }
    })
    .await;
    came
}

/// The broker's error says so when the queue is declared as a classic one.
async fn queue_kind(url: &str, group: &str) -> &'static str {
    let properties = lapin::ConnectionProperties::default();
    let connection = lapin::Connection::connect(url, properties).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut arguments = FieldTable::default();
    let single = AMQPValue::Boolean(true);
    arguments.insert("x-single-active-consumer".into(), single);
    let classic = AMQPValue::LongString("classic".into());
    arguments.insert("x-queue-type".into(), classic);
    let options = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let queue = format!("postrider.{group}");
    let declared = channel.queue_declare(queue.into(), options, arguments);
    match declared.await.map_err(|error| error.to_string()) {
        Ok(_) => "classic",
        Err(said) if !said.contains("x-queue-type") => panic!("{said}"),
        Err(said) if said.contains("'quorum'") => "quorum",
        // A queue that was declared without a type.
        Err(said) if said.contains("current is none") => "classic",
        Err(said) => panic!("{said}"),
    }
}
