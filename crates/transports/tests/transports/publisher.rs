//! From the outbox through the publisher to the consumer: nothing is lost, ids are stable, order is kept.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::RetryPolicy;
use postrider::breaker::{Breakers, Settings};
use postrider::failure::{Category, Failure};
use postrider::outbox::{self, OUTBOX};
use postrider::publisher::{Publisher, PublisherOptions};
use postrider::transport::{
    Consumer, Message, MessageId, Origin, Published, Subscription, Transport, TransportError,
};
use postrider::{Worker, WorkerOptions};
use postrider_testkit::{TestDb, crash, eventually};
use postrider_transports::PostgresTransport;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{database, pool};

/// Records what is published, and can be made unavailable, rejecting, or storing without confirmation.
#[derive(Debug)]
struct Probe {
    inner: PostgresTransport,
    calls: AtomicUsize,
    passed: Mutex<Vec<MessageId>>,
    away: AtomicUsize,
}

impl Probe {
    fn new(db: &TestDb) -> Arc<Self> {
        Arc::new(Self {
            inner: PostgresTransport::new(pool(db.connect_options())).unwrap(),
            calls: AtomicUsize::new(0),
            passed: Mutex::new(Vec::new()),
            away: AtomicUsize::new(0),
        })
    }
}

impl Transport for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.passed
                .lock()
                .await
                .extend(batch.iter().map(|message| message.id));
            let away = self
                .away
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                });
            if away.is_ok() {
                let failure = Failure::with_category("NETWORK_ERROR", Category::Network, "away");
                return vec![Published::Unavailable(failure); batch.len()];
            }
            self.inner.publish(batch).await
        })
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Transport::declare(&self.inner, topic, group)
    }

    fn subscribe<'a>(
        &'a self,
        subscription: Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Consumer>, TransportError>> {
        self.inner.subscribe(subscription)
    }
}

struct Running {
    stop: CancellationToken,
    task: JoinHandle<postrider::Result<()>>,
}

impl Running {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn options() -> PublisherOptions {
    PublisherOptions {
        unroutable_wait: Duration::from_millis(100),
        unavailable_wait: Duration::from_millis(20),
        policy: RetryPolicy::fixed(Duration::from_millis(10), 3).unwrap(),
        ..PublisherOptions::default()
    }
}

async fn start(db: &TestDb, transport: Arc<Probe>, breakers: &Breakers) -> Running {
    let publisher = Publisher::new(transport, breakers, db.pool(), &OUTBOX)
        .await
        .unwrap()
        .options(options());
    let settings = WorkerOptions {
        lease: Duration::from_secs(1),
        rescue_every: Duration::from_millis(100),
        ..WorkerOptions::default()
    };
    let worker = Worker::new(db.pool(), &OUTBOX)
        .unwrap()
        .options(settings)
        .handle_others(publisher.handler());
    let stop = CancellationToken::new();
    let task = tokio::spawn(worker.run(stop.clone()));
    Running { stop, task }
}

async fn enqueue(db: &TestDb, message: outbox::Message) -> MessageId {
    let pool = db.pool();
    let mut tx = pool.begin().await.unwrap();
    let receipt = outbox::enqueue(&mut tx, &message).await.unwrap();
    let origin = Origin::load(&mut tx, &OUTBOX).await.unwrap();
    tx.commit().await.unwrap();
    origin.mint(receipt.id)
}

fn message(n: usize) -> outbox::Message {
    outbox::Message::new("sent", &n).unwrap()
}

async fn outbox_is_empty(db: &TestDb) {
    eventually("the outbox is empty", async || {
        let left: i64 = sqlx::query_scalar("select count(*) from postrider.outbox")
            .fetch_one(&db.pool())
            .await
            .unwrap();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

/// Receives and acknowledges this number of messages.
async fn drain(transport: &dyn Transport, count: usize) -> Vec<Message> {
    let subscription = Subscription::new("g", ["sent"]).unwrap();
    let consumer = transport.subscribe(subscription).await.unwrap();
    let mut came = Vec::new();
    eventually("the messages came", async || {
        for delivery in consumer
            .receive(100, Duration::from_millis(500))
            .await
            .unwrap()
        {
            came.push(delivery.message);
            consumer.ack(delivery.receipt).await.unwrap();
        }
        if came.len() >= count {
            Ok(())
        } else {
            Err(came.len())
        }
    })
    .await;
    let more = consumer
        .receive(100, Duration::from_millis(200))
        .await
        .unwrap();
    assert!(more.is_empty(), "more than were sent: {more:?}");
    came
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enqueued_messages_arrive_in_key_order_with_headers_and_trace() {
    let db = database().await;
    let probe = Probe::new(&db);
    Transport::declare(&*probe, "sent", "g").await.unwrap();
    let running = start(&db, probe.clone(), &Breakers::default()).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut ids = Vec::new();
    for n in 0..30 {
        let message = message(n)
            .ordering_key(format!("k{}", n % 3))
            .unwrap()
            .headers(&serde_json::json!({"n": n}))
            .unwrap()
            .trace(trace)
            .unwrap();
        ids.push(enqueue(&db, message).await);
    }
    let came = drain(&*probe, 30).await;
    let mut by_key: BTreeMap<Box<str>, Vec<usize>> = BTreeMap::new();
    for message in &came {
        let n: usize = message.read().unwrap();
        assert_eq!(
            message.id, ids[n],
            "the id is settled by the business transaction"
        );
        assert_eq!(message.header("n"), Some(n.to_string()));
        assert_eq!(message.trace.as_deref(), Some(trace));
        by_key
            .entry(message.key.clone().unwrap())
            .or_default()
            .push(n);
    }
    for (key, numbers) in by_key {
        assert_eq!(numbers.len(), 10);
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
    }
    outbox_is_empty(&db).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_confirmation_and_settling_publishes_again_with_the_same_ids() {
    let db = database().await;
    let probe = Probe::new(&db);
    Transport::declare(&*probe, "sent", "g").await.unwrap();
    let mut ids = HashSet::new();
    for n in 0..20 {
        ids.insert(enqueue(&db, message(n)).await);
    }
    // The first publisher stops right after the confirmation, with its leases.
    let trap = crash::at("publisher.after_publish").pause();
    let first = start(&db, probe.clone(), &Breakers::default()).await;
    tokio::time::timeout(Duration::from_secs(30), trap.reached())
        .await
        .unwrap();
    first.task.abort();
    let _ = first.task.await;

    let second = start(&db, probe.clone(), &Breakers::default()).await;
    outbox_is_empty(&db).await;
    second.stop().await;
    // If the first continues now, its leases are stale.
    drop(trap);
    let passed = probe.passed.lock().await.clone();
    assert!(passed.len() > 20, "nothing was published twice");
    assert_eq!(passed.into_iter().collect::<HashSet<_>>(), ids);
    // The log recognised the duplicates.
    let came = drain(&*probe, 20).await;
    assert_eq!(came.iter().map(|m| m.id).collect::<HashSet<_>>(), ids);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unroutable_message_waits_and_is_published_once_there_is_a_subscriber() {
    let db = database().await;
    let probe = Probe::new(&db);
    let running = start(&db, probe.clone(), &Breakers::default()).await;
    let id = enqueue(&db, message(1)).await;
    eventually("the reason is on the row", async || {
        let row: Option<(Option<String>, i16)> =
            sqlx::query_as("select error_code, attempts from postrider.outbox")
                .fetch_optional(&db.pool())
                .await
                .unwrap();
        let (code, attempts) = row.expect("an unroutable message must not disappear");
        assert_eq!(attempts, 0, "waiting for a subscriber is no attempt");
        (code.as_deref() == Some("UNROUTABLE")).then_some(())
    })
    .await;
    let calls = probe.calls.load(Ordering::Relaxed);
    eventually("it was tried again", async || {
        probe.calls.load(Ordering::Relaxed) > calls + 3
    })
    .await;
    Transport::declare(&*probe, "sent", "g").await.unwrap();
    let came = drain(&*probe, 1).await;
    assert_eq!(came[0].id, id);
    outbox_is_empty(&db).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_transport_opens_the_breaker_and_costs_no_attempt() {
    let db = database().await;
    let probe = Probe::new(&db);
    Transport::declare(&*probe, "sent", "g").await.unwrap();
    // More failures than the policy has attempts.
    probe.away.store(10, Ordering::Relaxed);
    let breakers = Breakers::new(Settings {
        threshold: 2.try_into().unwrap(),
        open_for: Duration::from_millis(50),
    });
    let id = enqueue(&db, message(1)).await;
    let running = start(&db, probe.clone(), &breakers).await;
    let breaker = breakers.get("probe");
    eventually("the breaker opened", async || {
        breaker.state() != postrider::breaker::State::Closed
    })
    .await;
    let came = drain(&*probe, 1).await;
    assert_eq!(came[0].id, id);
    outbox_is_empty(&db).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_that_is_not_a_message_becomes_a_dead_letter() {
    let db = database().await;
    let probe = Probe::new(&db);
    Transport::declare(&*probe, "sent", "g").await.unwrap();
    enqueue(&db, message(1)).await;
    enqueue(&db, message(2)).await;
    let origin = Origin::load(&mut db.connect().await, &OUTBOX)
        .await
        .unwrap();
    let publisher = Publisher::new(probe.clone(), &Breakers::default(), db.pool(), &OUTBOX)
        .await
        .unwrap()
        .envelope(move |item| match item.read::<usize>() {
            Ok(1) => Err(Failure::new("UNREADABLE_PAYLOAD", "one is no number")),
            _ => Ok(Message::from_item(origin, item)),
        });
    let worker = Worker::new(db.pool(), &OUTBOX)
        .unwrap()
        .handle_others(publisher.handler());
    let stop = CancellationToken::new();
    let task = tokio::spawn(worker.run(stop.clone()));
    assert_eq!(drain(&*probe, 1).await.len(), 1);
    let dead = eventually("the other is dead", async || {
        let code: Option<Option<String>> =
            sqlx::query_scalar("select error_code from postrider.outbox where state = 'dead'")
                .fetch_optional(&db.pool())
                .await
                .unwrap();
        code.flatten()
    })
    .await;
    assert_eq!(dead, "UNREADABLE_PAYLOAD");
    stop.cancel();
    task.await.unwrap().unwrap();
}
