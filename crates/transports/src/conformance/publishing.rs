//! What a confirmation means, and what a message keeps.

use std::collections::HashSet;

use postrider::transport::{Fate, MessageId, Published};

use super::{Harness, Names, publish, receive, receive_nothing, receive_one};

/// Confirmed messages are there for a client that connects later.
pub async fn confirmed_means_stored(harness: &impl Harness) {
    let names = Names::new("stored");
    let sender = harness.connect().await;
    sender.declare(&names.topic, &names.group).await.unwrap();
    let messages = names.messages(30);
    publish(&*sender, &messages).await;
    drop(sender);

    let receiver = harness.connect().await;
    let consumer = receiver.subscribe(names.subscription()).await.unwrap();
    let deliveries = receive(&*consumer, messages.len()).await;
    let sent: HashSet<MessageId> = messages.iter().map(|message| message.id).collect();
    let received: HashSet<MessageId> = deliveries.iter().map(|d| d.message.id).collect();
    assert_eq!(received, sent);
}

/// Nothing is dropped silently: the sender learns of it, and the same message can be published once there is a subscriber.
pub async fn a_message_without_subscribers_is_unroutable(harness: &impl Harness) {
    let (routed, unrouted) = (Names::new("routed"), Names::new("unrouted"));
    let transport = harness.connect().await;
    transport
        .declare(&routed.topic, &routed.group)
        .await
        .unwrap();
    let batch = [unrouted.message(0), routed.message(1), unrouted.message(2)];
    let answers = transport.publish(&batch).await;
    assert_eq!(
        answers,
        [
            Published::Unroutable,
            Published::Confirmed,
            Published::Unroutable
        ]
    );

    let consumer = transport.subscribe(unrouted.subscription()).await.unwrap();
    receive_nothing(&*consumer).await;
    publish(&*transport, &batch[..1]).await;
    assert_eq!(receive_one(&*consumer).await.message, batch[0]);
}

/// A duplicate is stored once, or keeps the id by which consumers recognise it.
pub async fn a_message_published_twice_keeps_its_id(harness: &impl Harness) {
    let names = Names::new("twice");
    let transport = harness.connect().await;
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    let messages = names.messages(3);
    publish(&*transport, &messages).await;
    // Alone, together, and twice in one batch.
    publish(&*transport, &messages[..1]).await;
    let doubled = [
        messages[1].clone(),
        messages[2].clone(),
        messages[1].clone(),
    ];
    publish(&*transport, &doubled).await;

    let copies = if harness.stores_once() { 3 } else { 7 };
    let mut ids = HashSet::new();
    for delivery in receive(&*consumer, copies).await {
        ids.insert(delivery.message.id);
        assert_eq!(consumer.ack(delivery.receipt).await.unwrap(), Fate::Settled);
    }
    assert_eq!(ids, messages.iter().map(|message| message.id).collect());
    receive_nothing(&*consumer).await;
}

/// As large as the outbox allows, among small ones.
pub async fn a_large_message_arrives_whole(harness: &impl Harness) {
    let names = Names::new("large");
    let transport = harness.connect().await;
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    let mut messages = names.messages(3);
    messages[1].payload = format!("{{\"number\":1,\"body\":\"{}\"}}", "é".repeat(500_000)).into();
    publish(&*transport, &messages).await;
    let mut received = receive(&*consumer, 3).await;
    let large = received
        .iter_mut()
        .find(|d| d.message.id == messages[1].id)
        .unwrap();
    assert!(
        large.message.payload == messages[1].payload,
        "the body was changed"
    );
}

/// A message arrives as it was sent: key, exact payload, headers and trace context.
pub async fn headers_and_trace_context_are_kept(harness: &impl Harness) {
    let names = Names::new("headers");
    let transport = harness.connect().await;
    let consumer = transport.subscribe(names.subscription()).await.unwrap();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let payload = r#"{"amount": 1.50,  "text": "\u00e9 \"ü\" 日本"}"#;
    let mut message = names.message(0).key("customer 7").trace(trace);
    message.payload = payload.into();
    message.headers = Some(r#"{"tenant": "a", "retries": 3, "text": "ü, \"quoted\""}"#.into());
    publish(&*transport, std::slice::from_ref(&message)).await;

    let received = receive_one(&*consumer).await.message;
    assert_eq!(received.id, message.id);
    assert_eq!(received.topic, message.topic);
    assert_eq!(received.key, message.key);
    assert_eq!(received.trace.as_deref(), Some(trace));
    assert_eq!(&*received.payload, payload);
    for name in ["tenant", "retries", "text"] {
        assert_eq!(received.header(name), message.header(name), "{name}");
    }
}

/// Fan-out: each group has its own copy, independent of other groups.
pub async fn every_group_gets_every_message(harness: &impl Harness) {
    let (first, mut second) = (Names::new("fan"), Names::new("out"));
    second.topic.clone_from(&first.topic);
    let transport = harness.connect().await;
    let one = transport.subscribe(first.subscription()).await.unwrap();
    let other = transport.subscribe(second.subscription()).await.unwrap();
    publish(&*transport, &first.messages(10)).await;
    for delivery in receive(&*one, 10).await {
        one.ack(delivery.receipt).await.unwrap();
    }
    let deliveries = receive(&*other, 10).await;
    assert!(deliveries.iter().all(|delivery| !delivery.redelivered));
    receive_nothing(&*one).await;
}

/// Subscriptions are durable: earlier messages are not the group's, later ones wait for it.
pub async fn a_subscription_keeps_messages_for_a_late_consumer(harness: &impl Harness) {
    let (early, mut late) = (Names::new("early"), Names::new("late"));
    late.topic.clone_from(&early.topic);
    let transport = harness.connect().await;
    transport.declare(&early.topic, &early.group).await.unwrap();
    publish(&*transport, &early.messages(5)).await;
    transport.declare(&late.topic, &late.group).await.unwrap();
    let since = [early.message(5), early.message(6)];
    publish(&*transport, &since).await;

    let consumer = transport.subscribe(late.subscription()).await.unwrap();
    let received = receive(&*consumer, 2).await;
    let ids: HashSet<MessageId> = received.iter().map(|d| d.message.id).collect();
    assert_eq!(ids, since.iter().map(|message| message.id).collect());
    receive_nothing(&*consumer).await;
}
