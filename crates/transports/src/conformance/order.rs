//! Order within a key, and independence of keys.

use std::collections::HashMap;
use std::time::Duration;

use postrider::Verdict;
use postrider::transport::Message;
use tokio::time::Instant;

use super::{DEADLINE, Harness, Names, failure, number, publish, receive_one, retry};

const KEYS: usize = 8;
const EACH: usize = 12;

/// With two consumers and failures, each key's messages are handled in the order in which they were published.
pub async fn messages_of_a_key_arrive_in_order(harness: &impl Harness) {
    let names = Names::new("order");
    let (here, there) = (harness.connect().await, harness.connect().await);
    let consumers = [
        here.subscribe(names.subscription()).await.unwrap(),
        there.subscribe(names.subscription()).await.unwrap(),
    ];
    let messages: Vec<Message> = (0..KEYS * EACH)
        .map(|n| names.message(n).key(format!("key {}", n % KEYS)))
        .collect();
    // In batches that hold several messages of one key.
    for batch in messages.chunks(3 * KEYS + 1) {
        publish(&*here, batch).await;
    }
    let mut done: HashMap<Box<str>, Vec<usize>> = HashMap::new();
    let mut count = 0;
    let end = Instant::now() + DEADLINE;
    while count < KEYS * EACH {
        assert!(Instant::now() < end, "{count} of {} arrived", KEYS * EACH);
        for consumer in &consumers {
            for delivery in consumer
                .receive(7, Duration::from_millis(20))
                .await
                .unwrap()
            {
                let n = number(&delivery.message);
                if n % 11 == 3 && delivery.attempts == 0 {
                    consumer
                        .settle_one(delivery.receipt, retry())
                        .await
                        .unwrap();
                    continue;
                }
                done.entry(delivery.message.key.unwrap())
                    .or_default()
                    .push(n);
                consumer.ack(delivery.receipt).await.unwrap();
                count += 1;
            }
        }
    }
    for (key, numbers) in done {
        assert!(numbers.is_sorted(), "{key}: {numbers:?}");
        assert_eq!(numbers.len(), EACH, "{key}");
    }
}

/// A message that waits for its next attempt holds back later ones of its key and no others. Once it is a dead letter, its key
/// continues.
pub async fn a_failing_message_holds_back_its_key_and_no_other(harness: &impl Harness) {
    let names = Names::new("held-back");
    let transport = harness.connect().await;
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    let stuck = [names.message(0).key("stuck"), names.message(1).key("stuck")];
    let free = [names.message(2).key("free"), names.message(3).key("free")];
    publish(&*transport, &stuck).await;
    let first = receive_one(&*consumer).await;
    assert_eq!(first.message.id, stuck[0].id);
    let later = Verdict::Retry {
        failure: failure(),
        after: Some(Duration::from_secs(2)),
    };
    consumer.settle_one(first.receipt, later).await.unwrap();

    publish(&*transport, &free).await;
    for message in &free {
        let delivery = receive_one(&*consumer).await;
        assert_eq!(delivery.message.id, message.id, "another key must pass");
        consumer.ack(delivery.receipt).await.unwrap();
    }
    let again = receive_one(&*consumer).await;
    assert_eq!(
        again.message.id, stuck[0].id,
        "the next of the key must wait"
    );
    assert_eq!(again.attempts, 1);
    consumer
        .settle_one(again.receipt, Verdict::Dead(failure()))
        .await
        .unwrap();
    assert_eq!(receive_one(&*consumer).await.message.id, stuck[1].id);
}
