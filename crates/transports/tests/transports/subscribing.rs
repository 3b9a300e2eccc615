//! Subscribing retries transient broker errors and fails at once on permanent ones.

use std::time::Duration;

use postrider::transport::{
    Message, MessageId, Published, Subscription, Transport, TransportError,
};
use postrider_testkit::servers::Kind;
use postrider_testkit::within;
use postrider_transports::broker::{BrokerTransport, Options};
use tokio::time::Instant;

use crate::brokers::{shared, transport};
use crate::support::database;

const DEADLINE: Duration = Duration::from_secs(90);

fn names() -> (String, String) {
    let tag = uuid::Uuid::new_v4().simple().to_string();
    (format!("subscribing.{tag}"), format!("subscribing-{tag}"))
}

fn options() -> Options {
    Options {
        declare_timeout: DEADLINE,
        ..Options::default()
    }
}

async fn subscribe(transport: &BrokerTransport) -> Result<(), TransportError> {
    let (topic, group) = names();
    let subscription = Subscription::new(&group, [&topic]).unwrap();
    let consumer = transport.subscribe(subscription).await?;
    let id = MessageId::new(uuid::Uuid::new_v4());
    let message = Message::new(id, topic.as_str(), "1".to_owned());
    within(DEADLINE, "the message is confirmed", async || {
        let answers = Transport::publish(transport, std::slice::from_ref(&message)).await;
        if answers == [Published::Confirmed] {
            Ok(())
        } else {
            Err(answers)
        }
    })
    .await;
    let delivery = within(DEADLINE, "the message arrives", async || {
        let wait = Duration::from_millis(500);
        let mut received = consumer.receive(1, wait).await.unwrap();
        received.pop().ok_or("nothing")
    })
    .await;
    assert_eq!(delivery.message.id, id);
    Ok(())
}

/// A single call succeeds although the broker is down when it starts.
async fn waits_for_a_broker_that_is_down(kind: Kind) {
    let Some(server) = kind.exclusive().await else {
        return;
    };
    let db = database().await;
    server.kill().await;
    let waiting = transport(kind, server.url(), 1, &db, options());
    let mut subscribing = std::pin::pin!(subscribe(&waiting));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut subscribing).await;
    assert!(early.is_err(), "no broker, yet it returned: {early:?}");
    let ((), subscribed) = tokio::join!(server.start(), subscribing);
    subscribed.unwrap();
}

/// Clients that are connected already subscribe to a new topic while the broker restarts.
async fn survives_a_restart(kind: Kind) {
    let Some(server) = kind.exclusive().await else {
        return;
    };
    let db = database().await;
    let connected = transport(kind, server.url(), 1, &db, options());
    subscribe(&connected).await.unwrap();
    let subscribing = async {
        for _ in 0..3 {
            subscribe(&connected).await.unwrap();
        }
    };
    let restarting = async {
        server.kill().await;
        server.start().await;
    };
    tokio::join!(subscribing, restarting);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_subscribing_waits_for_a_broker_that_is_down() {
    waits_for_a_broker_that_is_down(Kind::Kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_subscribing_waits_for_a_broker_that_is_down() {
    waits_for_a_broker_that_is_down(Kind::Rabbitmq).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_subscribing_waits_for_a_broker_that_is_down() {
    waits_for_a_broker_that_is_down(Kind::Nats).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_subscribing_survives_a_restart() {
    survives_a_restart(Kind::Kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_subscribing_survives_a_restart() {
    survives_a_restart(Kind::Rabbitmq).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_subscribing_survives_a_restart() {
    survives_a_restart(Kind::Nats).await;
}

/// On a new cluster the first groups find no coordinator: the brokers create the offsets topic only then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_groups_of_a_new_kafka_cluster_can_subscribe_at_once() {
    let Some(server) = Kind::Kafka.dedicated().await else {
        return;
    };
    let db = database().await;
    let here = transport(Kind::Kafka, server.url(), 1, &db, Options::default());
    let subscribing = (0..4).map(|_| subscribe(&here));
    for subscribed in futures_util::future::join_all(subscribing).await {
        subscribed.unwrap();
    }
}

/// Fails well before the retries would end.
async fn fails_at_once(kind: Kind, change: impl Fn(&str) -> String) {
    let Some(shared) = shared(kind).await else {
        return;
    };
    let url = change(&shared.url);
    let start = Instant::now();
    let refused = subscribe(&transport(kind, &url, 1, &shared.db, options())).await;
    assert!(
        matches!(refused, Err(TransportError::Rejected { .. })),
        "{refused:?}"
    );
    assert!(start.elapsed() < DEADLINE / 2, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_wrong_credentials_fail_at_once() {
    fails_at_once(Kind::Rabbitmq, |url| {
        url.replace("guest:guest", "guest:wrong")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_an_unknown_virtual_host_fails_at_once() {
    fails_at_once(Kind::Rabbitmq, |url| url.replace("%2f", "no-such-vhost")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kafka_an_invalid_client_setting_fails_at_once() {
    fails_at_once(Kind::Kafka, |url| format!("{url}?no.such.setting=1")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nats_a_stream_that_overlaps_anothers_subject_fails_at_once() {
    let Some(shared) = shared(Kind::Nats).await else {
        return;
    };
    let (topic, group) = names();
    let client = async_nats::connect(&shared.url).await.unwrap();
    let other = async_nats::jetstream::stream::Config {
        name: format!("other-{group}"),
        subjects: vec![format!("postrider.{topic}")],
        ..Default::default()
    };
    let context = async_nats::jetstream::new(client);
    context.create_stream(other).await.unwrap();
    let here = transport(Kind::Nats, &shared.url, 1, &shared.db, options());
    let refused = Transport::declare(&here, &topic, &group).await;
    assert!(
        matches!(refused, Err(TransportError::Rejected { .. })),
        "{refused:?}"
    );
}
