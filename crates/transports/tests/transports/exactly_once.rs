//! A consumer's effects happen once, whatever fails, in the delivery's own transaction or with the inbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::RetryPolicy;
use postrider::failure::Failure;
use postrider::transport::{
    Message, MessageHandler, MessageId, Published, Subscriber, Subscription, Transport,
    TransportError,
};
use postrider::{BoxError, Verdict};
use postrider_testkit::{TestDb, crash, eventually};
use postrider_transports::PostgresTransport;
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::support::{database, pool};

/// No unique constraint: a second effect would show.
const EFFECTS: &str = "create table effect (message uuid not null, number integer not null)";
const COUNTS: &str = "select count(*), count(distinct message) from effect";

fn messages(count: i32) -> Vec<Message> {
    let message = |n: i32| {
        let id = MessageId::new(uuid::Uuid::new_v4());
        Message::new(id, "paid", n.to_string()).key(format!("account {}", n % 5))
    };
    (0..count).map(message).collect()
}

fn subscription() -> Subscription {
    Subscription::new("wallet", ["paid"])
        .unwrap()
        .lease(Duration::from_millis(1_500))
        // Enough attempts that random failures (two in nine calls) never exhaust them.
        .policy(RetryPolicy::fixed(Duration::from_millis(10), 50).unwrap())
}

async fn effect(tx: &mut PgConnection, message: &Message) -> Result<(), BoxError> {
    let number: i32 = message.read()?;
    sqlx::query("insert into effect values ($1, $2)")
        .bind(message.id.uuid())
        .bind(number)
        .execute(tx)
        .await?;
    Ok(())
}

async fn transport(db: &TestDb) -> Arc<PostgresTransport> {
    Arc::new(PostgresTransport::new(pool(db.connect_options())).unwrap())
}

/// Writes its effect, then fails or panics on every third call, so that the effect must be rolled back.
fn flaky_handler() -> Arc<MessageHandler> {
    let calls = Arc::new(AtomicUsize::new(0));
    let handle: Arc<MessageHandler> = Arc::new(
        move |tx, message| -> BoxFuture<'_, Result<Verdict, BoxError>> {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                effect(tx, message).await?;
                match call % 9 {
                    2 => Err(Failure::new("503", "come again").into()),
                    5 => panic!("on purpose"),
                    8 => Ok(Verdict::Snooze(Duration::from_millis(5))),
                    _ => Ok(Verdict::Done),
                }
            })
        },
    );
    handle
}

async fn every_effect_happens_once(
    transport: Arc<PostgresTransport>,
    effects: PgPool,
    crash_points: &[&str],
) {
    let traps: Vec<_> = crash_points
        .iter()
        .map(|point| crash::at(point).on_hit(3).error())
        .collect();
    sqlx::raw_sql(EFFECTS).execute(&effects).await.unwrap();
    transport.declare("paid", "wallet").await.unwrap();
    let messages = messages(60);
    assert_eq!(
        transport.publish(&messages).await,
        vec![Published::Confirmed; 60]
    );
    let stop = CancellationToken::new();
    let running: Vec<_> = (0..2)
        .map(|_| {
            let transport: Arc<dyn Transport> = transport.clone();
            let subscriber =
                Subscriber::new(transport, subscription(), effects.clone(), flaky_handler());
            tokio::spawn(subscriber.concurrency(2).run(stop.clone()))
        })
        .collect();
    eventually("all effects happened", async || {
        let counts: (i64, i64) = sqlx::query_as(COUNTS).fetch_one(&effects).await.unwrap();
        if counts == (60, 60) {
            Ok(())
        } else {
            Err(counts)
        }
    })
    .await;
    stop.cancel();
    for task in running {
        task.await.unwrap().unwrap();
    }
    let counts: (i64, i64) = sqlx::query_as(COUNTS).fetch_one(&effects).await.unwrap();
    assert_eq!(counts, (60, 60));
    assert!(traps.iter().all(|trap| trap.fired() == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_in_the_same_database_happens_once_without_an_inbox() {
    let db = database().await;
    let transport = transport(&db).await;
    assert!(transport.shares(&db.pool()).await.unwrap());
    every_effect_happens_once(transport, db.pool(), &["subscriber.before_shared_commit"]).await;
    let inbox: i64 = sqlx::query_scalar("select count(*) from postrider.inbox")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    assert_eq!(inbox, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_effect_in_another_database_happens_once_with_the_inbox() {
    let (db, wallet) = (database().await, database().await);
    let transport = transport(&db).await;
    assert!(!transport.shares(&wallet.pool()).await.unwrap());
    let points = ["subscriber.before_commit", "subscriber.before_ack"];
    every_effect_happens_once(transport, wallet.pool(), &points).await;
    let inbox: i64 = sqlx::query_scalar("select count(*) from postrider.inbox")
        .fetch_one(&wallet.pool())
        .await
        .unwrap();
    assert_eq!(inbox, 60);
}

#[tokio::test]
async fn a_consumer_that_lost_its_delivery_cannot_commit_its_effect() {
    let db = database().await;
    sqlx::raw_sql(EFFECTS).execute(&db.pool()).await.unwrap();
    let transport = transport(&db).await;
    let slow = transport.subscribe(subscription()).await.unwrap();
    transport.publish(&messages(1)).await;
    let delivery = slow
        .receive(1, Duration::from_secs(10))
        .await
        .unwrap()
        .pop()
        .unwrap();
    // As after a stall past the lease: another consumer has the delivery, with another fence.
    sqlx::query("update postrider.delivery set fence = fence + 1, lease_owner = 'other'")
        .execute(&db.pool())
        .await
        .unwrap();
    let pool = db.pool();
    let mut tx = pool.begin().await.unwrap();
    effect(&mut tx, &delivery.message).await.unwrap();
    let settled = slow.settle_in(&mut tx, vec![delivery.receipt]).await;
    assert!(matches!(settled, Err(TransportError::Lost)), "{settled:?}");
    tx.rollback().await.unwrap();
    let counts: (i64, i64) = sqlx::query_as(COUNTS).fetch_one(&pool).await.unwrap();
    assert_eq!(counts, (0, 0));
}

#[tokio::test]
async fn publishing_in_a_transaction_that_rolls_back_has_no_effect() {
    let db = database().await;
    let transport = transport(&db).await;
    let consumer = transport.subscribe(subscription()).await.unwrap();
    let (pool, batch) = (db.pool(), messages(4));
    let mut tx = pool.begin().await.unwrap();
    let answers = transport.publish_in(&mut tx, &batch[..2]).await.unwrap();
    assert_eq!(answers, vec![Published::Confirmed; 2]);
    tx.rollback().await.unwrap();

    let mut tx = pool.begin().await.unwrap();
    transport.publish_in(&mut tx, &batch[2..]).await.unwrap();
    let early = consumer
        .receive(10, Duration::from_millis(200))
        .await
        .unwrap();
    assert!(early.is_empty(), "delivered before the commit");
    tx.commit().await.unwrap();
    let mut came = Vec::new();
    while came.len() < 2 {
        came.extend(consumer.receive(10, Duration::from_secs(10)).await.unwrap());
    }
    let mut ids: Vec<MessageId> = came.iter().map(|delivery| delivery.message.id).collect();
    let mut expected: Vec<MessageId> = batch[2..].iter().map(|message| message.id).collect();
    ids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ids, expected);
}

#[tokio::test]
async fn an_invalid_message_fails_alone_and_holds_back_its_key() {
    let db = database().await;
    let transport = transport(&db).await;
    transport.declare("paid", "wallet").await.unwrap();
    let mut batch = messages(11);
    batch[3].payload = "{not json".into();
    let answers = transport.publish(&batch).await;
    for (n, answer) in answers.iter().enumerate() {
        match n {
            3 => assert!(
                matches!(answer, Published::Failed(failure) if !failure.is_transient()),
                "{answer:?}"
            ),
            // The next of the same account must not overtake it.
            8 => assert!(matches!(answer, Published::Unavailable(_)), "{answer:?}"),
            _ => assert_eq!(*answer, Published::Confirmed, "message {n}"),
        }
    }
}

#[tokio::test]
async fn a_message_that_crashes_its_consumers_becomes_a_dead_letter_without_affecting_others() {
    let db = database().await;
    let transport = transport(&db).await;
    transport.declare("paid", "wallet").await.unwrap();
    let batch = messages(2);
    transport.publish(&batch).await;
    // As after the first message crashed ten consumers.
    let killed = "
        update postrider.delivery set state = 'leased', lease_until = now() - interval '1 s', fence = 1,
               lease_owner = 'dead', losses = 9
        where message_id = $1";
    let killed = sqlx::query(killed).bind(batch[0].id.uuid());
    killed.execute(&db.pool()).await.unwrap();
    let consumer = transport.subscribe(subscription()).await.unwrap();
    let mut came = Vec::new();
    while came.is_empty() {
        came = consumer.receive(10, Duration::from_secs(10)).await.unwrap();
    }
    assert_eq!(came[0].message.id, batch[1].id);
    let code: String = sqlx::query_scalar(
        "select error_code from postrider.delivery where message_id = $1 and state = 'dead'",
    )
    .bind(batch[0].id.uuid())
    .fetch_one(&db.pool())
    .await
    .unwrap();
    assert_eq!(code, "WORKER_LOST");
}
