//! The message log: deduplicated across segments, replayed, and dropped by segment, never too early.

use std::collections::HashSet;
use std::time::Duration;

use postrider::Verdict;
use postrider::failure::Failure;
use postrider::transport::{Consumer, Message, MessageId, Published, Subscription, Transport};
use postrider_testkit::TestDb;
use postrider_transports::PostgresTransport;
use postrider_transports::postgres::{ReplayFrom, Retained, Retention};

use crate::support::{database, pool};

const NOW: Retention = Retention {
    segment: Duration::ZERO,
    keep: Duration::ZERO,
};
/// Starts a new segment, drops nothing.
const TURN: Retention = Retention {
    segment: Duration::ZERO,
    keep: Duration::from_secs(3600),
};

struct Fixture {
    db: TestDb,
    transport: PostgresTransport,
}

async fn fixture() -> Fixture {
    let db = database().await;
    let transport = PostgresTransport::new(pool(db.connect_options())).unwrap();
    transport.declare("t", "g").await.unwrap();
    Fixture { db, transport }
}

impl Fixture {
    async fn publish(&self, count: usize) -> Vec<MessageId> {
        let message = |n: usize| {
            let id = MessageId::new(uuid::Uuid::new_v4());
            Message::new(id, "t", n.to_string()).key(format!("k{}", n % 3))
        };
        let messages: Vec<Message> = (0..count).map(message).collect();
        let answers = self.transport.publish(&messages).await;
        assert_eq!(answers, vec![Published::Confirmed; count]);
        messages.iter().map(|message| message.id).collect()
    }

    async fn consumer(&self, group: &str) -> Box<dyn Consumer> {
        let subscription = Subscription::new(group, ["t"]).unwrap();
        self.transport.subscribe(subscription).await.unwrap()
    }

    /// Receives and acknowledges this number of messages, and returns their ids in order of arrival.
    async fn drain(&self, consumer: &dyn Consumer, count: usize) -> Vec<MessageId> {
        let mut came = Vec::new();
        while came.len() < count {
            let deliveries = consumer
                .receive(100, Duration::from_secs(10))
                .await
                .unwrap();
            assert!(!deliveries.is_empty(), "{} of {count} came", came.len());
            for delivery in deliveries {
                came.push(delivery.message.id);
                consumer.ack(delivery.receipt).await.unwrap();
            }
        }
        came
    }

    async fn stored(&self) -> i64 {
        sqlx::query_scalar("select count(*) from postrider.message")
            .fetch_one(&self.db.pool())
            .await
            .unwrap()
    }

    async fn waiting(&self) -> i64 {
        sqlx::query_scalar("select count(*) from postrider.delivery")
            .fetch_one(&self.db.pool())
            .await
            .unwrap()
    }
}

#[tokio::test]
async fn a_message_is_stored_once_even_across_segments() {
    let f = fixture().await;
    let message = Message::new(MessageId::new(uuid::Uuid::new_v4()), "t", "1");
    f.transport.publish(std::slice::from_ref(&message)).await;
    assert_eq!(f.transport.retain(TURN).await.unwrap().started, Some(2));
    let answers = f.transport.publish(std::slice::from_ref(&message)).await;
    assert_eq!(answers, [Published::Confirmed]);
    assert_eq!((f.stored().await, f.waiting().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_publishers_and_new_segments_store_every_message_once() {
    let f = fixture().await;
    let messages: Vec<Message> = (0..200)
        .map(|n| Message::new(MessageId::new(uuid::Uuid::new_v4()), "t", n.to_string()))
        .collect();
    let publisher = || async {
        for batch in messages.chunks(10) {
            loop {
                let answers = f.transport.publish(batch).await;
                if answers.iter().all(|answer| *answer == Published::Confirmed) {
                    break;
                }
            }
        }
    };
    let turner = async {
        for _ in 0..20 {
            f.transport.retain(TURN).await.unwrap();
        }
    };
    tokio::join!(publisher(), publisher(), publisher(), turner);
    let segments: i64 = sqlx::query_scalar("select count(*) from postrider.message_segment")
        .fetch_one(&f.db.pool())
        .await
        .unwrap();
    assert!(segments > 1);
    assert_eq!((f.stored().await, f.waiting().await), (200, 200));
}

#[tokio::test]
async fn a_replay_from_a_message_or_a_time_is_in_order() {
    let f = fixture().await;
    let consumer = f.consumer("g").await;
    let first = f.publish(6).await;
    f.transport.retain(TURN).await.unwrap();
    let middle: sqlx::types::time::OffsetDateTime = sqlx::query_scalar("select clock_timestamp()")
        .fetch_one(&f.db.pool())
        .await
        .unwrap();
    let second = f.publish(6).await;
    f.drain(&*consumer, 12).await;

    let again = f
        .transport
        .replay("g", "t", ReplayFrom::Time(middle))
        .await
        .unwrap();
    assert_eq!(again, 6);
    let came: HashSet<MessageId> = f.drain(&*consumer, 6).await.into_iter().collect();
    assert_eq!(came, second.iter().copied().collect());

    let again = f
        .transport
        .replay("g", "t", ReplayFrom::Message(first[3]))
        .await
        .unwrap();
    assert_eq!(again, 9);
    let came = f.drain(&*consumer, 9).await;
    for key in 0..3 {
        let of_key = |ids: &[MessageId]| -> Vec<MessageId> {
            let all = [&first[..], &second[..]].concat();
            let place = |id: &MessageId| all.iter().position(|other| other == id).unwrap();
            ids.iter()
                .copied()
                .filter(|id| place(id) % 3 == key)
                .collect()
        };
        let expected = of_key(&[&first[3..], &second[..]].concat());
        assert_eq!(of_key(&came), expected, "order of key {key}");
    }

    let unknown = ReplayFrom::Message(MessageId::new(uuid::Uuid::new_v4()));
    assert!(f.transport.replay("g", "t", unknown).await.is_err());
}

#[tokio::test]
async fn a_replay_does_not_duplicate_unfinished_deliveries() {
    let f = fixture().await;
    let ids = f.publish(5).await;
    let again = f
        .transport
        .replay("g", "t", ReplayFrom::Message(ids[0]))
        .await
        .unwrap();
    assert_eq!(again, 0);
    assert_eq!(f.waiting().await, 5);
}

#[tokio::test]
async fn a_new_group_can_replay_the_past() {
    let f = fixture().await;
    let ids = f.publish(5).await;
    let late = f.consumer("late").await;
    f.transport
        .replay("late", "t", ReplayFrom::Message(ids[0]))
        .await
        .unwrap();
    let came: HashSet<MessageId> = f.drain(&*late, 5).await.into_iter().collect();
    assert_eq!(came, ids.into_iter().collect());
}

#[tokio::test]
async fn retention_never_drops_messages_that_deliveries_refer_to() {
    let f = fixture().await;
    f.publish(4).await;
    assert_eq!(f.transport.retain(NOW).await.unwrap().started, Some(2));
    // Unfinished.
    assert_eq!(f.transport.retain(NOW).await.unwrap(), Retained::default());
    let consumer = f.consumer("g").await;
    f.drain(&*consumer, 3).await;
    let mut last = consumer.receive(1, Duration::from_secs(10)).await.unwrap();
    assert_eq!(f.transport.retain(NOW).await.unwrap().dropped, [0; 0]);
    // Dead: it may be redriven.
    let failure = Failure::new("INVALID_FORMAT", "no");
    let receipt = last.pop().unwrap().receipt;
    consumer
        .settle_one(receipt, Verdict::Dead(failure))
        .await
        .unwrap();
    assert_eq!(f.transport.retain(NOW).await.unwrap().dropped, [0; 0]);
    assert_eq!(f.stored().await, 4);
    sqlx::query("delete from postrider.delivery")
        .execute(&f.db.pool())
        .await
        .unwrap();
    assert_eq!(f.transport.retain(NOW).await.unwrap().dropped, [1]);
    assert_eq!(f.stored().await, 0);
    // An empty segment is not replaced, and publishing goes on.
    assert_eq!(f.transport.retain(NOW).await.unwrap(), Retained::default());
    f.publish(1).await;
    assert_eq!(f.stored().await, 1);
}

#[tokio::test]
async fn retention_does_not_wait_for_locks() {
    let f = fixture().await;
    f.publish(1).await;
    let pool = f.db.pool();
    let mut open = pool.begin().await.unwrap();
    let message = Message::new(MessageId::new(uuid::Uuid::new_v4()), "t", "1");
    f.transport.publish_in(&mut open, &[message]).await.unwrap();
    assert_eq!(f.transport.retain(NOW).await.unwrap(), Retained::default());
    open.commit().await.unwrap();
    assert_eq!(f.transport.retain(NOW).await.unwrap().started, Some(2));
}
