//! What a consumer may rely on, and what its death costs.

use std::collections::HashMap;
use std::time::Duration;

use postrider::failure::{Category, Failure};
use postrider::runtime::Verdict;
use postrider::transport::{Fate, MessageId};
use tokio::time::Instant;

use super::{
    DEADLINE, Harness, LEASE, Names, publish, receive, receive_nothing, receive_one, soon,
    try_again,
};

/// A consumer that vanishes without a word loses what it held, to others, and can no longer settle it.
pub async fn a_dead_consumers_messages_move_on(harness: &impl Harness) {
    let names = Names::new("moves");
    let (dying, living) = (harness.connect().await, harness.connect().await);
    let consumer = dying.subscribe(names.subscription()).await.unwrap();
    let messages = names.messages(3);
    publish(&*living, &messages).await;
    let held = receive(&*consumer, 3).await;
    drop(consumer);
    drop(dying);

    let heir = living.subscribe(names.subscription()).await.unwrap();
    let mut came: Vec<MessageId> = Vec::new();
    while came.len() < 3 {
        let delivery = receive_one(&*heir).await;
        assert!(delivery.redelivered);
        assert_eq!(delivery.attempts, 0, "a death is no failed attempt");
        came.push(delivery.message.id);
        assert_eq!(heir.ack(delivery.receipt).await.unwrap(), Fate::Settled);
    }
    came.sort_unstable();
    let mut expected: Vec<MessageId> = held.iter().map(|d| d.message.id).collect();
    expected.sort_unstable();
    assert_eq!(came, expected);
}

/// What is neither settled nor given back comes again, while its consumer lives on.
pub async fn a_forgotten_delivery_comes_again(harness: &impl Harness) {
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

/// However long a handler takes, as long as its consumer lives nobody else gets the message.
pub async fn a_living_consumer_keeps_its_messages(harness: &impl Harness) {
    let names = Names::new("keeps");
    let transport = harness.connect().await;
    let slow = transport.subscribe(names.subscription()).await.unwrap();
    publish(&*transport, &names.messages(1)).await;
    let delivery = receive_one(&*slow).await;
    let other = transport.subscribe(names.subscription()).await.unwrap();
    let watched = other.receive(10, LEASE * 2).await.unwrap();
    assert!(watched.is_empty(), "went to another: {watched:?}");
    assert_eq!(slow.ack(delivery.receipt).await.unwrap(), Fate::Settled);
    receive_nothing(&*other).await;
}

/// Not now is no failure.
pub async fn what_is_put_off_comes_again_at_no_cost(harness: &impl Harness) {
    let names = Names::new("put-off");
    let transport = harness.connect().await;
    let subscription = names.subscription().policy(soon(1));
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
        let fate = consumer.settle_one(delivery.receipt, try_again()).await;
        assert_eq!(fate.unwrap(), Fate::Settled);
    }
    let delivery = receive_one(&*consumer).await;
    assert_eq!(consumer.ack(delivery.receipt).await.unwrap(), Fate::Settled);
    assert!(harness.dead_letters(&names.group).await.is_empty());
}

/// Poison ends in the dead letters after bounded attempts, and the others go on meanwhile.
pub async fn a_message_that_always_fails_is_a_dead_letter(harness: &impl Harness) {
    let names = Names::new("poison");
    let transport = harness.connect().await;
    let subscription = names.subscription().policy(soon(3));
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
            let fate = consumer.settle_one(delivery.receipt, try_again()).await;
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

/// What can't succeed is not tried again.
pub async fn a_permanent_failure_is_a_dead_letter_at_once(harness: &impl Harness) {
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

/// A consumer that is told to stop gives back what it holds; the next one gets it at once and with all its attempts.
pub async fn closing_gives_back_at_no_cost(harness: &impl Harness) {
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

/// Back-pressure: nothing more is fetched until something was settled.
pub async fn a_consumer_holds_no_more_than_its_prefetch(harness: &impl Harness) {
    let names = Names::new("prefetch");
    let transport = harness.connect().await;
    let subscription = names.subscription().prefetch(5);
    let consumer = transport.subscribe(subscription).await.unwrap();
    publish(&*transport, &names.messages(20)).await;
    let mut held = receive(&*consumer, 5).await;
    assert_eq!(consumer.held(), 5);
    let more = consumer.receive(20, super::QUIET).await.unwrap();
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

/// Within a group a message goes to one consumer.
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
        assert!(Instant::now() < end, "{} of 100 came", seen.len());
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
    assert!(seen.values().all(|times| *times == 1), "some came twice");
}

/// Who stops waiting (a deadline, a stop) loses nothing that was on its way.
pub async fn a_dropped_receive_loses_nothing(harness: &impl Harness) {
    const COUNT: usize = 150;
    let names = Names::new("dropped");
    let transport = harness.connect().await;
    // So long that what got lost would not come again in time.
    let subscription = names.subscription().lease(10 * DEADLINE).prefetch(20);
    let consumer = transport.subscribe(subscription).await.unwrap();
    publish(&*transport, &names.messages(COUNT)).await;
    let end = Instant::now() + DEADLINE;
    let (mut done, mut dropped) = (0, 0);
    while done < COUNT {
        assert!(Instant::now() < end, "{done} of {COUNT} came");
        let patience = Duration::from_micros(u64::try_from(dropped % 40).unwrap() * 100);
        let receiving = consumer.receive(7, DEADLINE);
        let Ok(received) = tokio::time::timeout(patience, receiving).await else {
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
