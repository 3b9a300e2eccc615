//! What a consumer can rely on, and what happens when it is lost.

use std::collections::HashMap;
use std::time::Duration;

use postrider::Verdict;
use postrider::failure::{Category, Failure};
use postrider::transport::{Fate, MessageId};
use tokio::time::Instant;

use super::{
    DEADLINE, Harness, LEASE, Names, publish, receive, receive_nothing, receive_one, retry,
    retry_immediately,
};

/// The deliveries of a consumer that disappears go to others, without spending an attempt.
pub async fn a_lost_consumers_messages_go_to_another(harness: &impl Harness) {
    let names = Names::new("moves");
    let (lost, surviving) = (harness.connect().await, harness.connect().await);
    let consumer = lost.subscribe(names.subscription()).await.unwrap();
    let messages = names.messages(3);
    publish(&*surviving, &messages).await;
    let held = receive(&*consumer, 3).await;
    drop(consumer);
    drop(lost);

    let heir = surviving.subscribe(names.subscription()).await.unwrap();
    let mut received: Vec<MessageId> = Vec::new();
    while received.len() < 3 {
        let delivery = receive_one(&*heir).await;
        assert!(delivery.redelivered);
        assert_eq!(
            delivery.attempts, 0,
            "losing a consumer is not a failed attempt"
        );
        received.push(delivery.message.id);
        assert_eq!(heir.ack(delivery.receipt).await.unwrap(), Fate::Settled);
    }
    received.sort_unstable();
    let mut expected: Vec<MessageId> = held.iter().map(|d| d.message.id).collect();
    expected.sort_unstable();
    assert_eq!(received, expected);
}

/// A delivery that is dropped without settling is redelivered, while its consumer goes on.
pub async fn a_dropped_delivery_is_redelivered(harness: &impl Harness) {
    let names = Names::new("forgotten");
    let transport = harness.connect().await;
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    publish(&*transport, &names.messages(1)).await;
    drop(receive_one(&*consumer).await);
    let again = receive_one(&*consumer).await;
    assert!(again.redelivered);
    assert_eq!(consumer.ack(again.receipt).await.unwrap(), Fate::Settled);
    assert_eq!(consumer.held(), 0);
}

/// However long a handler takes, nobody else gets the message while its consumer is alive.
pub async fn a_living_consumer_keeps_its_messages(harness: &impl Harness) {
    let names = Names::new("keeps");
    let transport = harness.connect().await;
    let slow = transport.subscribe(names.subscription()).await.unwrap();
    publish(&*transport, &names.messages(1)).await;
    let delivery = receive_one(&*slow).await;
    let other = transport.subscribe(names.subscription()).await.unwrap();
    let watched = other.receive(10, LEASE * 2).await.unwrap();
    assert!(
        watched.is_empty(),
        "delivered to another consumer: {watched:?}"
    );
    assert_eq!(slow.ack(delivery.receipt).await.unwrap(), Fate::Settled);
    receive_nothing(&*other).await;
}

/// A snooze is not a failure.
pub async fn a_snoozed_message_comes_again_without_spending_an_attempt(harness: &impl Harness) {
    let names = Names::new("snooze");
    let transport = harness.connect().await;
    let subscription = names.subscription().policy(retry_immediately(1));
    let consumer = transport.subscribe(subscription).await.unwrap();
    publish(&*transport, &names.messages(1)).await;
    for _ in 0..3 {
        let delivery = receive_one(&*consumer).await;
        assert_eq!(delivery.attempts, 0);
        let fate = consumer
            .nack(delivery.receipt, Duration::from_millis(5))
            .await;
        assert_eq!(fate.unwrap(), Fate::Settled);
    }
    let delivery = receive_one(&*consumer).await;
    assert_eq!(consumer.ack(delivery.receipt).await.unwrap(), Fate::Settled);
}

/// A consumer sees how often a message has failed before.
pub async fn failed_attempts_are_counted(harness: &impl Harness) {
    let names = Names::new("counted");
    let transport = harness.connect().await;
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    publish(&*transport, &names.messages(1)).await;
    for attempts in 0..4 {
        let delivery = receive_one(&*consumer).await;
        assert_eq!(delivery.attempts, attempts);
        assert_eq!(delivery.redelivered, attempts > 0);
        let fate = consumer.settle_one(delivery.receipt, retry()).await;
        assert_eq!(fate.unwrap(), Fate::Settled);
    }
    let delivery = receive_one(&*consumer).await;
    assert_eq!(consumer.ack(delivery.receipt).await.unwrap(), Fate::Settled);
    assert!(harness.dead_letters(&names.group).await.is_empty());
}

/// A poison message becomes a dead letter after bounded attempts, and doesn't hold up the others.
pub async fn a_message_that_always_fails_becomes_a_dead_letter(harness: &impl Harness) {
    let names = Names::new("poison");
    let transport = harness.connect().await;
    let subscription = names.subscription().policy(retry_immediately(3));
    let consumer = transport.subscribe(subscription).await.unwrap();
    let messages = names.messages(5);
    publish(&*transport, &messages).await;
    let poison = messages[2].id;
    let mut tried = 0;
    let mut done = 0;
    while tried < 3 || done < 4 {
        let delivery = receive_one(&*consumer).await;
        if delivery.message.id == poison {
            tried += 1;
            let fate = consumer.settle_one(delivery.receipt, retry()).await;
            let expected = if tried == 3 {
                Fate::Dead
            } else {
                Fate::Settled
            };
            assert_eq!(fate.unwrap(), expected, "at attempt {tried}");
        } else {
            done += 1;
            consumer.ack(delivery.receipt).await.unwrap();
        }
    }
    receive_nothing(&*consumer).await;
    let dead = harness.dead_letters(&names.group).await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0].id, dead[0].attempts), (poison, 3));
    assert_eq!(dead[0].code, "ON_PURPOSE");
}

/// A permanent failure is not retried.
pub async fn a_permanent_failure_becomes_a_dead_letter_at_once(harness: &impl Harness) {
    let names = Names::new("permanent");
    let transport = harness.connect().await;
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    publish(&*transport, &names.messages(1)).await;
    let delivery = receive_one(&*consumer).await;
    let failure = Failure::with_category("INVALID_FORMAT", Category::Data, "not ours");
    let verdict = Verdict::retry(failure);
    let fate = consumer.settle_one(delivery.receipt, verdict).await;
    assert_eq!(fate.unwrap(), Fate::Dead);
    receive_nothing(&*consumer).await;
    let dead = harness.dead_letters(&names.group).await;
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0].attempts, &*dead[0].code), (1, "INVALID_FORMAT"));
}

/// A consumer that closes releases its deliveries; the next one gets them at once and with all their attempts.
pub async fn closing_releases_messages_without_spending_an_attempt(harness: &impl Harness) {
    let names = Names::new("closing");
    let transport = harness.connect().await;
    let leaving = transport.subscribe(names.subscription()).await.unwrap();
    publish(&*transport, &names.messages(4)).await;
    let held = receive(&*leaving, 4).await;
    assert_eq!(leaving.held(), 4);
    leaving.close().await.unwrap();
    drop(held);

    let staying = transport.subscribe(names.subscription()).await.unwrap();
    for delivery in receive(&*staying, 4).await {
        assert_eq!(delivery.attempts, 0);
        assert_eq!(staying.ack(delivery.receipt).await.unwrap(), Fate::Settled);
    }
}

/// Backpressure: nothing more is fetched until something is settled.
pub async fn a_consumer_holds_no_more_than_its_prefetch(harness: &impl Harness) {
    let names = Names::new("prefetch");
    let transport = harness.connect().await;
    let subscription = names.subscription().prefetch(5);
    let consumer = transport.subscribe(subscription).await.unwrap();
    publish(&*transport, &names.messages(20)).await;
    let mut held = receive(&*consumer, 5).await;
    assert_eq!(consumer.held(), 5);
    let more = consumer.receive(20, super::QUIET_PERIOD).await.unwrap();
    assert!(more.is_empty(), "{} more than the prefetch", more.len());

    let mut settled = 0;
    while let Some(delivery) = held.pop_front() {
        consumer.ack(delivery.receipt).await.unwrap();
        settled += 1;
        if settled + held.len() < 20 {
            held.extend(receive(&*consumer, 1).await);
        }
        assert!(consumer.held() <= 5);
    }
    assert_eq!(settled, 20);
    assert_eq!(consumer.held(), 0);
}

/// Within a group, each message goes to one consumer.
pub async fn consumers_of_a_group_share_its_messages(harness: &impl Harness) {
    let names = Names::new("shares");
    let (here, there) = (harness.connect().await, harness.connect().await);
    let consumers = [
        here.subscribe(names.subscription().prefetch(10))
            .await
            .unwrap(),
        there
            .subscribe(names.subscription().prefetch(10))
            .await
            .unwrap(),
    ];
    publish(&*here, &names.messages(100)).await;
    let mut seen: HashMap<MessageId, usize> = HashMap::new();
    let end = Instant::now() + DEADLINE;
    while seen.len() < 100 {
        assert!(Instant::now() < end, "{} of 100 arrived", seen.len());
        for consumer in &consumers {
            for delivery in consumer
                .receive(10, Duration::from_millis(50))
                .await
                .unwrap()
            {
                *seen.entry(delivery.message.id).or_default() += 1;
                assert_eq!(consumer.ack(delivery.receipt).await.unwrap(), Fate::Settled);
            }
        }
    }
    assert!(
        seen.values().all(|times| *times == 1),
        "some were delivered twice"
    );
}

/// Cancelling a receive (a timeout, a shutdown) loses nothing.
pub async fn a_dropped_receive_loses_nothing(harness: &impl Harness) {
    const COUNT: usize = 150;
    let names = Names::new("dropped");
    let transport = harness.connect().await;
    // So long that a lost delivery would not be redelivered in time.
    let subscription = names.subscription().lease(10 * DEADLINE).prefetch(20);
    let consumer = transport.subscribe(subscription).await.unwrap();
    publish(&*transport, &names.messages(COUNT)).await;
    let end = Instant::now() + DEADLINE;
    let (mut done, mut dropped) = (0, 0);
    while done < COUNT {
        assert!(Instant::now() < end, "{done} of {COUNT} arrived");
        let timeout = Duration::from_micros(u64::try_from(dropped % 40).unwrap() * 100);
        let receiving = consumer.receive(7, DEADLINE);
        let Ok(received) = tokio::time::timeout(timeout, receiving).await else {
            dropped += 1;
            continue;
        };
        for delivery in received.unwrap() {
            assert_eq!(consumer.ack(delivery.receipt).await.unwrap(), Fate::Settled);
            done += 1;
        }
    }
    assert!(dropped > 0);
}
