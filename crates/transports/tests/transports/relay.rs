//! The relay from the outbox to the log without leases: each message once, and nothing that needs a claim.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::breaker::Breakers;
use postrider::lease::{Claim, Queue};
use postrider::outbox::{self, OUTBOX};
use postrider::publisher::{Publisher, PublisherOptions};
use postrider::transport::{MessageId, Origin, Relay, Transport};
use postrider::{Handler, Verdict, Worker};
use postrider_testkit::{TestDb, eventually};
use postrider_transports::PostgresTransport;
use sqlx::{Executor, PgPool};
use tokio_util::sync::CancellationToken;

use crate::support::{database, pool};

/// A separate transport, as another process would have.
async fn transport(db: &TestDb) -> PostgresTransport {
    let transport = PostgresTransport::new(pool(db.connect_options())).unwrap();
    Transport::declare(&transport, "sent", "g").await.unwrap();
    transport
}

async fn order(pool: &PgPool) -> Relay {
    let mut connection = pool.acquire().await.unwrap();
    Relay {
        origin: Origin::load(&mut connection, &OUTBOX).await.unwrap(),
        except: Vec::new(),
        worker: "relay".to_owned(),
        turn: Duration::from_secs(60),
    }
}

async fn enqueue(pool: &PgPool, message: outbox::Message) -> i64 {
    let mut connection = pool.acquire().await.unwrap();
    let receipt = outbox::enqueue(&mut connection, &message).await;
    receipt.unwrap().id
}

fn message(topic: &str) -> outbox::Message {
    outbox::Message::new(topic, &1).unwrap()
}

async fn left(pool: &PgPool) -> Vec<i64> {
    let left = "select id from postrider.outbox order by id";
    sqlx::query_scalar(left).fetch_all(pool).await.unwrap()
}

async fn count(pool: &PgPool, table: &'static str) -> i64 {
    let text = match table {
        "message" => "select count(*) from postrider.message",
        _ => "select count(*) from postrider.delivery",
    };
    sqlx::query_scalar(text).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn waiting_messages_are_delivered_to_every_group_with_their_ids() {
    let db = database().await;
    let (pool, transport) = (db.pool(), transport(&db).await);
    Transport::declare(&transport, "sent", "other")
        .await
        .unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = serde_json::json!({"n": "7"});
    let full = message("sent").headers(&headers).unwrap();
    let id = enqueue(&pool, full.trace(trace).unwrap()).await;
    let order = order(&pool).await;
    assert_eq!(transport.relay(&order).await.unwrap(), 1);
    assert_eq!(left(&pool).await, Vec::<i64>::new());
    for group in ["g", "other"] {
        let subscription = postrider::transport::Subscription::new(group, ["sent"]);
        let consumer = transport.subscribe(subscription.unwrap()).await.unwrap();
        let came = consumer.receive(10, Duration::from_secs(5)).await.unwrap();
        assert_eq!(came.len(), 1, "{group}");
        let message = &came[0].message;
        assert_eq!(message.id, order.origin.mint(id));
        assert_eq!(&*message.payload, "1");
        assert_eq!(message.header("n").as_deref(), Some("7"));
        assert_eq!(message.trace.as_deref(), Some(trace));
    }
    let recorded: Vec<Vec<i64>> = sqlx::query_scalar("select ids from postrider.completion")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(recorded, [[id]], "the record says what became of it");
}

#[tokio::test]
async fn messages_that_need_a_claim_are_left_to_workers() {
    let db = database().await;
    let (pool, transport) = (db.pool(), transport(&db).await);
    Transport::declare(&transport, "own", "g").await.unwrap();
    let mut stay = vec![
        enqueue(&pool, message("sent").ordering_key("k").unwrap()).await,
        enqueue(&pool, message("nobody")).await,
        enqueue(&pool, message("own")).await,
        enqueue(
            &pool,
            message("sent").delay(Duration::from_secs(60)).unwrap(),
        )
        .await,
    ];
    let spoilt = [
        "update postrider.outbox set state = 'leased', lease_until = now() + interval '1 minute', fence = 1, lease_owner = 'x'",
        "update postrider.outbox set state = 'leased', lease_until = now() - interval '1 minute', fence = 1, lease_owner = 'x'",
        "update postrider.outbox set state = 'waiting', attempts = 1",
        "update postrider.outbox set losses = 1",
        "update postrider.outbox set state = 'dead', finished_at = now(), error_code = 'X', cause = 'X'",
    ];
    for change in spoilt {
        let id = enqueue(&pool, message("sent")).await;
        let text = format!("{change} where id = {id}");
        pool.execute(sqlx::AssertSqlSafe(text)).await.unwrap();
        stay.push(id);
    }
    enqueue(&pool, message("sent")).await;
    let order = Relay {
        except: vec!["own".to_owned()],
        ..order(&pool).await
    };
    assert_eq!(transport.relay(&order).await.unwrap(), 1, "the last alone");
    assert_eq!(left(&pool).await, stay);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_relays_and_a_claimer_move_each_message_once() {
    let db = database().await;
    let pool = db.pool();
    let fill = "insert into postrider.outbox (topic, payload) select 'sent', to_json(n) from generate_series(1, 5000) n";
    let transports = [
        transport(&db).await,
        transport(&db).await,
        transport(&db).await,
    ];
    pool.execute(fill).await.unwrap();
    let order = order(&pool).await;
    let queue = Queue::new(&OUTBOX).unwrap();
    let claim = Claim::new("w", Duration::from_secs(60), 700);
    let (claimed, moved) = tokio::join!(
        queue.claim(&pool, &claim),
        futures_util::future::join_all(transports.iter().map(|t| t.relay(&order)))
    );
    let claimed = claimed.unwrap().len() as u64;
    let moved: u64 = moved.into_iter().map(Result::unwrap).sum();
    assert_eq!(moved + claimed, 5_000);
    assert_eq!(count(&pool, "message").await, i64::try_from(moved).unwrap());
    assert_eq!(
        count(&pool, "delivery").await,
        i64::try_from(moved).unwrap()
    );
    assert_eq!(left(&pool).await.len() as u64, claimed);
}

#[tokio::test]
async fn messages_already_in_the_log_are_not_delivered_twice() {
    let db = database().await;
    let (pool, transport) = (db.pool(), transport(&db).await);
    let order = order(&pool).await;
    // Published, then dead before it was settled, then redriven: once in the current segment, once in an older one.
    for turned in [false, true] {
        let id = enqueue(&pool, message("sent")).await;
        let known = postrider::transport::Message::new(order.origin.mint(id), "sent", "1");
        transport.publish(&[known]).await;
        if turned {
            let turn = "select postrider.turn_segment('0s')";
            pool.execute(turn).await.unwrap();
        }
        assert_eq!(transport.relay(&order).await.unwrap(), 1);
        assert_eq!(left(&pool).await, Vec::<i64>::new());
    }
    assert_eq!(count(&pool, "message").await, 2);
    assert_eq!(count(&pool, "delivery").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publishing_worker_relays_and_still_publishes_what_needs_a_claim() {
    let db = database().await;
    let (pool, transport) = (db.pool(), Arc::new(transport(&db).await));
    let mut ids = HashSet::new();
    let order = order(&pool).await;
    for n in 0..20 {
        let plain = message("sent");
        let message = match n % 2 {
            0 => plain,
            _ => plain.ordering_key(format!("k{}", n % 3)).unwrap(),
        };
        ids.insert(order.origin.mint(enqueue(&pool, message).await));
    }
    let own = enqueue(&pool, message("own")).await;
    // There is a subscription to what the worker handles itself: the worker keeps it.
    Transport::declare(&*transport, "own", "g").await.unwrap();
    let breakers = Breakers::default();
    let publisher = Publisher::new(transport, &breakers, pool.clone(), &OUTBOX);
    let publisher = publisher.await.unwrap();
    let (sender, mut handled) = tokio::sync::mpsc::unbounded_channel();
    let worker = Worker::new(pool.clone(), &OUTBOX).unwrap().handle(
        "own",
        Handler::new(move |item| {
            sender.send(item.id).unwrap();
            async { Ok(Verdict::Done) }
        }),
    );
    let stop = CancellationToken::new();
    let worker = publisher
        .options(PublisherOptions::default())
        .attach_to(worker);
    let running = tokio::spawn(worker.run(stop.clone()));
    assert_eq!(handled.recv().await, Some(own));
    eventually("the outbox is empty", async || match left(&pool).await {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    let logged: Vec<uuid::Uuid> = sqlx::query_scalar("select id from postrider.message")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(logged.len(), 20);
    assert_eq!(
        logged
            .into_iter()
            .map(MessageId::new)
            .collect::<HashSet<_>>(),
        ids
    );
    let relayed: Option<i64> = sqlx::query_scalar(
        "select sum(cardinality(ids)) from postrider.completion where worker = 'relay'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(relayed, Some(10), "those without a key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transport_in_another_database_relays_nothing() {
    let (here, there) = (database().await, database().await);
    let transport = Arc::new(transport(&there).await);
    let pool = here.pool();
    enqueue(&pool, message("sent")).await;
    // If it were relayed, it would be searched for there.
    let elsewhere = enqueue(&there.pool(), message("sent")).await;
    let breakers = Breakers::default();
    let publisher = Publisher::new(transport, &breakers, pool.clone(), &OUTBOX);
    let worker = Worker::new(pool.clone(), &OUTBOX).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(publisher.await.unwrap().attach_to(worker).run(stop.clone()));
    eventually("the outbox is empty", async || match left(&pool).await {
        left if left.is_empty() => Ok(()),
        left => Err(left),
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    assert_eq!(left(&there.pool()).await, [elsewhere]);
    assert_eq!(count(&there.pool(), "message").await, 1);
}

/// Number of sequential scans of the outbox on this connection.
const WHOLE_READS: &str = "
select seq_scan from pg_stat_xact_user_tables where relid = 'postrider.outbox'::regclass";

#[tokio::test]
async fn a_relay_that_started_with_an_empty_outbox_does_not_scan_a_later_backlog() {
    let db = database().await;
    transport(&db).await;
    let mut connection = db.connect().await;
    connection.execute("vacuum postrider.outbox").await.unwrap();
    let relay = "select postrider.relay('0000000000000000', '{}', 'w', null, 0, 500)";
    for _ in 0..6 {
        connection.execute(relay).await.unwrap();
    }
    let fill = "insert into postrider.outbox (topic, payload) select 'sent', '1' from generate_series(1, 20000)";
    connection.execute(fill).await.unwrap();
    let mut tx = sqlx::Connection::begin(&mut connection).await.unwrap();
    for _ in 0..3 {
        tx.execute(relay).await.unwrap();
    }
    let whole: i64 = sqlx::query_scalar(WHOLE_READS)
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    assert_eq!(whole, 0);
}
