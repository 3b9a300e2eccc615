//! A server that stops and comes back.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postrider::transport::{Consumer, Message, MessageId, Published, Transport};
use tokio::time::Instant;

use super::{DEADLINE, Names, Restartable, receive_one};

/// While the server is down, publisher and consumer get transient errors and lose nothing; once it is up, the same clients work.
pub async fn clients_recover_from_a_server_that_is_down_at_the_start(harness: &impl Restartable) {
    let names = Names::new("down");
    let transport = harness.connect().await;
    transport.declare(&names.topic, &names.group).await.unwrap();
    drop(transport);
    harness.stop().await;

    let transport = harness.connect().await;
    let message = names.message(0);
    let answers = transport.publish(std::slice::from_ref(&message)).await;
    assert!(
        matches!(answers[..], [Published::Unavailable(_)]),
        "{answers:?}"
    );
    let subscribed = transport.subscribe(names.subscription()).await;
    assert!(subscribed.is_err_and(|error| error.is_transient()));

    harness.start().await;
    publish_until_confirmed(&*transport, std::slice::from_ref(&message)).await;
    let consumer = subscribe_until_ready(&*transport, &names).await;
    assert_eq!(receive_one(&*consumer).await.message.id, message.id);
}

/// Every confirmed message arrives, and the clients reconnect by themselves.
pub async fn a_restart_in_the_middle_loses_nothing(harness: &impl Restartable) {
    const BATCHES: usize = 20;
    let names = Arc::new(Names::new("restart"));
    let transport = harness.connect().await;
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    let messages: Vec<Message> = names.messages(BATCHES * 10);
    let expected: HashSet<MessageId> = messages.iter().map(|message| message.id).collect();

    let sender = harness.connect().await;
    let sending = async {
        for (n, batch) in messages.chunks(10).enumerate() {
            if n == BATCHES / 3 || n == BATCHES / 2 {
                harness.stop().await;
                harness.start().await;
            }
            publish_until_confirmed(&*sender, batch).await;
        }
    };
    let receiving = async {
        let mut received: HashSet<MessageId> = HashSet::new();
        // The time of two restarts on a busy machine included.
        let end = Instant::now() + 10 * DEADLINE;
        while received.len() < expected.len() {
            assert!(
                Instant::now() < end,
                "{} of {} arrived",
                received.len(),
                expected.len()
            );
            match consumer.receive(20, Duration::from_millis(200)).await {
                Ok(deliveries) => {
                    for delivery in deliveries {
                        received.insert(delivery.message.id);
                        // A lost acknowledgement only costs a redelivery.
                        let _ = consumer.ack(delivery.receipt).await;
                    }
                }
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        received
    };
    let ((), received) = tokio::join!(sending, receiving);
    assert_eq!(received, expected);
}

/// Publishes as a publisher does: retries unconfirmed messages with the same ids.
async fn publish_until_confirmed(transport: &dyn Transport, messages: &[Message]) {
    let end = Instant::now() + DEADLINE;
    loop {
        let answers = transport.publish(messages).await;
        if answers.iter().all(|answer| *answer == Published::Confirmed) {
            return;
        }
        assert!(Instant::now() < end, "never confirmed: {answers:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn subscribe_until_ready(transport: &dyn Transport, names: &Names) -> Box<dyn Consumer> {
    let end = Instant::now() + DEADLINE;
    loop {
        match transport.subscribe(names.subscription()).await {
            Ok(consumer) => return consumer,
            Err(error) => assert!(error.is_transient() && Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
