//! From a broker into the database: crashes between any two steps, other senders, backpressure, and effects that happen once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::breaker::{Breakers, Settings};
use postrider::outbox::{self, OUTBOX};
use postrider::publisher::{Publisher, PublisherOptions};
use postrider::transport::{
    Consumer, Message, MessageHandler, MessageId, Published, Subscriber, Subscription, Transport,
};
use postrider::{BoxError, Verdict, Worker};
use postrider_testkit::servers::Kind;
use postrider_testkit::{TestDb, crash, eventually, within};
use postrider_transports::broker::{BrokerTransport, Options};
use tokio_util::sync::CancellationToken;

use crate::brokers::{Shared, shared, transport};
use crate::other_senders;
use crate::support::database;

/// A broker may take a while to notice that a client is gone.
const DEADLINE: Duration = Duration::from_secs(90);

struct Names {
    topic: String,
    group: String,
}

impl Names {
    fn new(what: &str) -> Self {
        let tag = &uuid::Uuid::new_v4().simple().to_string()[..12];
        Self {
            topic: format!("intake.{what}.{tag}"),
            group: format!("{what}-{tag}"),
        }
    }

    fn subscription(&self) -> Subscription {
        Subscription::new(&self.group, [&self.topic]).unwrap()
    }

    fn message(&self, number: usize) -> Message {
        let id = MessageId::new(uuid::Uuid::new_v4());
        Message::new(id, self.topic.as_str(), number.to_string()).key("one key")
    }
}

async fn publish(transport: &BrokerTransport, messages: &[Message]) {
    within(DEADLINE, "confirmed", async || {
        let answers = Transport::publish(transport, messages).await;
        let confirmed = answers.iter().all(|a| *a == Published::Confirmed);
        if confirmed { Ok(()) } else { Err(answers) }
    })
    .await;
}

/// Receives and acknowledges this number of messages, and returns their bodies.
async fn drain(consumer: &dyn Consumer, count: usize) -> Vec<String> {
    let mut came = Vec::new();
    within(DEADLINE, "all came", async || {
        let wait = Duration::from_millis(500);
        for delivery in consumer.receive(100, wait).await.unwrap() {
            came.push(delivery.message.payload.to_string());
            consumer.ack(delivery.receipt).await.unwrap();
        }
        if came.len() >= count {
            Ok(())
        } else {
            Err(came.clone())
        }
    })
    .await;
    came
}

async fn deliveries(db: &TestDb, group: &str) -> i64 {
    sqlx::query_scalar("select count(*) from postrider.delivery where consumer_group = $1")
        .bind(group)
        .fetch_one(&db.pool())
        .await
        .unwrap()
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

/// The intake that fetched the first messages crashes before it stores them; another one continues.
async fn a_crash_before_the_commit_loses_nothing_and_keeps_the_order(broker: &Shared) {
    let names = Names::new("before");
    let (here, there) = (broker.transport(), broker.transport());
    let trap = crash::at("intake.before_commit").pause();
    let mut consumers = vec![here.subscribe(names.subscription()).await.unwrap()];
    let messages: Vec<Message> = (0..20).map(|n| names.message(n)).collect();
    publish(&there, &messages[..5]).await;
    tokio::time::timeout(DEADLINE, trap.reached())
        .await
        .unwrap();
    assert_eq!(deliveries(&broker.db, &names.group).await, 0);
    consumers.push(there.subscribe(names.subscription()).await.unwrap());
    publish(&there, &messages[5..]).await;
    drop(consumers.remove(0));
    drop(here);
    drop(trap);
    assert_eq!(drain(&*consumers[0], 20).await, numbers(0..20));
}

/// The broker gets no acknowledgement and redelivers what the database already has.
async fn redelivery_after_a_crash_before_acknowledging_is_deduplicated(broker: &Shared) {
    let names = Names::new("between");
    let transport = broker.transport();
    let trap = crash::at("intake.before_acknowledging").pause();
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    let messages: Vec<Message> = (0..6).map(|n| names.message(n)).collect();
    publish(&transport, &messages[..5]).await;
    tokio::time::timeout(DEADLINE, trap.reached())
        .await
        .unwrap();
    drop(consumer);
    drop(trap);

    let next = broker.transport();
    let consumer = next.subscribe(names.subscription()).await.unwrap();
    // It's behind the redelivered ones, so all of them were processed once it arrives.
    publish(&next, &messages[5..]).await;
    assert_eq!(drain(&*consumer, 6).await, numbers(0..6));
    assert_eq!(deliveries(&broker.db, &names.group).await, 0);
}

/// The consumer stays the same: the intake restarts by itself.
async fn an_intake_recovers_from_a_panic_at_any_step(broker: &Shared) {
    for point in ["intake.before_commit", "intake.before_acknowledging"] {
        let names = Names::new("panic");
        let transport = broker.transport();
        let trap = crash::at(point).panic();
        let consumer = transport.subscribe(names.subscription()).await.unwrap();
        let messages: Vec<Message> = (0..6).map(|n| names.message(n)).collect();
        publish(&transport, &messages[..5]).await;
        within(DEADLINE, "it panicked", async || trap.fired() == 1).await;
        publish(&transport, &messages[5..]).await;
        assert_eq!(drain(&*consumer, 6).await, numbers(0..6), "{point}");
        assert_eq!(deliveries(&broker.db, &names.group).await, 0);
    }
}

/// A body that isn't JSON, without headers or id, arrives as a JSON string, and so do the messages behind it.
async fn a_message_of_another_sender_blocks_nothing(broker: &Shared) {
    let names = Names::new("stranger");
    let transport = broker.transport();
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    other_senders::publish(
        broker.kind,
        &broker.url,
        &names.topic,
        b"\xffwhat\0 is this?",
    )
    .await;
    publish(&transport, &[names.message(7)]).await;
    let mut came = drain(&*consumer, 2).await;
    came.sort();
    assert_eq!(came[1], "7");
    let text: String = serde_json::from_str(&came[0]).unwrap();
    assert!(text.contains("is this?"), "{text}");
}

/// A service's migration subscribed with SQL, and no consumer was ever started.
async fn a_subscription_row_is_declared_at_the_broker_by_publishing(broker: &Shared) {
    let names = Names::new("row");
    sqlx::query("select postrider.subscribe($1, $2)")
        .bind(&names.topic)
        .bind(&names.group)
        .execute(&broker.db.pool())
        .await
        .unwrap();
    let transport = broker.transport();
    let other = Names::new("nobody");
    let answers = Transport::publish(&transport, &[other.message(0), names.message(1)]).await;
    assert_eq!(answers, [Published::Unroutable, Published::Confirmed]);
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    assert_eq!(drain(&*consumer, 1).await, ["1"]);
}

/// While nothing is handled, the database stores a bounded number of messages and the broker keeps the rest.
async fn the_backlog_in_the_database_is_bounded(broker: &Shared) {
    const ALL: usize = 4_000;
    let names = Names::new("bounded");
    let options = Options {
        backlog: 200,
        ..Options::default()
    };
    let transport = transport(broker.kind, &broker.url, 1, &broker.db, options);
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    let mut messages: Vec<Message> = (0..ALL).map(|n| names.message(n)).collect();
    for message in &mut messages {
        message.key = None;
    }
    for batch in messages.chunks(500) {
        publish(&transport, batch).await;
    }
    within(DEADLINE, "the intake rests", async || {
        let before = deliveries(&broker.db, &names.group).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        before >= 200 && before == deliveries(&broker.db, &names.group).await
    })
    .await;
    let waiting = deliveries(&broker.db, &names.group).await;
    assert!(waiting < 1_000, "{waiting} wait in the database");
    let came: BTreeSet<String> = drain(&*consumer, ALL).await.into_iter().collect();
    assert_eq!(came.len(), ALL);
}

/// The broker withholds for a while what the crashed intake had fetched. Messages behind it may wait for that once, but not for
/// one timeout after the other.
async fn a_crash_delays_the_messages_behind_it_only_once(broker: &Shared) {
    const ALL: usize = 6_000;
    let names = Names::new("crawl");
    let (here, there) = (broker.transport(), broker.transport());
    let trap = crash::at("intake.before_commit").pause();
    let consumer = here.subscribe(names.subscription()).await.unwrap();
    let mut messages: Vec<Message> = (0..ALL).map(|n| names.message(n)).collect();
    for message in &mut messages {
        message.key = None;
    }
    for batch in messages.chunks(500) {
        publish(&there, batch).await;
    }
    tokio::time::timeout(DEADLINE, trap.reached())
        .await
        .unwrap();
    drop(consumer);
    drop(here);
    drop(trap);
    let _consumer = there.subscribe(names.subscription()).await.unwrap();
    within(DEADLINE, "all are in the database", async || {
        let stored = deliveries(&broker.db, &names.group).await;
        if stored == 6_000 { Ok(()) } else { Err(stored) }
    })
    .await;
}

/// Two databases, outbox, publisher and inbox, and a broker that is killed twice.
async fn every_effect_happens_once_whatever_the_broker_does(kind: Kind) {
    const ALL: i64 = 300;
    let Some(server) = kind.exclusive().await else {
        return;
    };
    let (orchestrator, wallet) = (database().await, database().await);
    let names = Names::new("once");
    // No unique constraint: a second effect would show.
    sqlx::raw_sql("create table effect (message uuid not null)")
        .execute(&wallet.pool())
        .await
        .unwrap();
    let here = transport(kind, server.url(), 1, &orchestrator, Options::default());
    let there = transport(kind, server.url(), 1, &wallet, Options::default());
    let handle: Arc<MessageHandler> =
        Arc::new(|tx, message| -> BoxFuture<'_, Result<Verdict, BoxError>> {
            Box::pin(async move {
                sqlx::query("insert into effect values ($1)")
                    .bind(message.id.uuid())
                    .execute(tx)
                    .await?;
                Ok(Verdict::Done)
            })
        });
    let stop = CancellationToken::new();
    let subscriber = Subscriber::new(Arc::new(there), names.subscription(), wallet.pool(), handle);
    let subscriber = tokio::spawn(subscriber.run(stop.clone()));
    let breakers = Breakers::new(Settings {
        open_for: Duration::from_millis(200),
        ..Settings::default()
    });
    let publisher = Publisher::new(Arc::new(here), &breakers, orchestrator.pool(), &OUTBOX)
        .await
        .unwrap()
        .options(PublisherOptions {
            unroutable_wait: Duration::from_millis(200),
            unavailable_wait: Duration::from_millis(100),
            ..PublisherOptions::default()
        });
    let worker = Worker::new(orchestrator.pool(), &OUTBOX)
        .unwrap()
        .handle_others(publisher.handler());
    let worker = tokio::spawn(worker.run(stop.clone()));
    for n in 0..ALL {
        if n == ALL / 3 || n == ALL / 2 {
            server.kill().await;
        }
        if n == ALL / 3 + 20 || n == ALL / 2 + 20 {
            server.start().await;
        }
        let message = outbox::Message::new(&names.topic, &n).unwrap();
        let message = message.ordering_key(format!("account {}", n % 7)).unwrap();
        let pool = orchestrator.pool();
        let mut tx = pool.begin().await.unwrap();
        outbox::enqueue(&mut tx, &message).await.unwrap();
        tx.commit().await.unwrap();
    }
    let counts = async || -> (i64, i64) {
        sqlx::query_as("select count(*), count(distinct message) from effect")
            .fetch_one(&wallet.pool())
            .await
            .unwrap()
    };
    within(2 * DEADLINE, "all effects happened", async || {
        let counts = counts().await;
        if counts.1 == ALL {
            return Ok(());
        }
        // Messages that didn't arrive are still waiting somewhere.
        let outbox: Vec<(String, i64, Option<String>)> = sqlx::query_as(
            "select state::text, count(*), max(error_message) from postrider.outbox group by 1",
        )
        .fetch_all(&orchestrator.pool())
        .await
        .unwrap();
        Err((counts, outbox, deliveries(&wallet, &names.group).await))
    })
    .await;
    eventually("the outbox is empty", async || {
        let left: i64 = sqlx::query_scalar("select count(*) from postrider.outbox")
            .fetch_one(&orchestrator.pool())
            .await
            .unwrap();
        left == 0
    })
    .await;
    stop.cancel();
    subscriber.await.unwrap().unwrap();
    worker.await.unwrap().unwrap();
    assert_eq!(counts().await, (ALL, ALL));
}

macro_rules! on {
    ($module:ident, $kind:expr; $($name:ident),* $(,)?) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    if let Some(broker) = super::shared($kind).await {
                        super::$name(&broker).await;
                    }
                }
            )*

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn every_effect_happens_once_whatever_the_broker_does() {
                super::every_effect_happens_once_whatever_the_broker_does($kind).await;
            }
        }
    };
    ($module:ident, $kind:expr) => {
        on!($module, $kind;
            a_crash_before_the_commit_loses_nothing_and_keeps_the_order,
            redelivery_after_a_crash_before_acknowledging_is_deduplicated,
            an_intake_recovers_from_a_panic_at_any_step,
            a_message_of_another_sender_blocks_nothing,
            a_subscription_row_is_declared_at_the_broker_by_publishing,
            the_backlog_in_the_database_is_bounded,
            a_crash_delays_the_messages_behind_it_only_once,
        );
    };
}

on!(nats, postrider_testkit::servers::Kind::Nats);
on!(rabbitmq, postrider_testkit::servers::Kind::Rabbitmq);
on!(kafka, postrider_testkit::servers::Kind::Kafka);

/// Exceeding the server's limit is a permanent error and must not hold up other messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_for_nats_fails_alone() {
    let Some(broker) = shared(Kind::Nats).await else {
        return;
    };
    let names = Names::new("too-large");
    let transport = broker.transport();
    transport.declare(&names.topic, &names.group).await.unwrap();
    let mut batch = [names.message(0), names.message(1)];
    batch[0].key = None;
    batch[0].payload = format!("\"{}\"", "x".repeat(1_048_574)).into();
    let answers = Transport::publish(&transport, &batch).await;
    let refused = |answer: &Published| matches!(answer, Published::Failed(f) if !f.is_transient());
    assert!(refused(&answers[0]), "{:?}", answers[0]);
    assert_eq!(answers[1], Published::Confirmed);
}

/// A killed server may come back without a binding, and an operator may delete a queue. Publishing is then unroutable until the
/// group has declared its queue again, which it does by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_rabbitmq_lost_is_declared_again() {
    let Some(broker) = shared(Kind::Rabbitmq).await else {
        return;
    };
    let names = Names::new("lost");
    let receiver = broker.transport();
    let consumer = receiver.subscribe(names.subscription()).await.unwrap();
    publish(&receiver, &[names.message(0)]).await;
    assert_eq!(drain(&*consumer, 1).await, ["0"]);
    other_senders::delete_queue(&broker.url, &format!("postrider.{}", names.group)).await;
    // From a database that doesn't know the group, so it can't declare it.
    let elsewhere = database().await;
    let sender = transport(broker.kind, &broker.url, 3, &elsewhere, Options::default());
    publish(&sender, &[names.message(1)]).await;
    assert_eq!(drain(&*consumer, 1).await, ["1"]);
}
