//! The conformance suite for the Postgres transport.

use std::time::Duration;

use postrider::transport::{Message, MessageId, Published, Subscription, Transport};
use postrider_testkit::crash;
use postrider_transports::PostgresTransport;

use crate::support::{database, pool};

const TIMEOUT: Duration = Duration::from_secs(30);

postrider_transports::conformance_tests!(crate::support::shared, crate::support::private);

#[tokio::test]
async fn a_consumer_recovers_from_a_panic_while_claiming() {
    let db = database().await;
    let transport = PostgresTransport::new(pool(db.connect_options())).unwrap();
    let subscription = Subscription::new("g", ["t"])
        .unwrap()
        .lease(Duration::from_millis(300));
    let consumer = transport.subscribe(subscription).await.unwrap();
    let message = Message::new(MessageId::new(uuid::Uuid::new_v4()), "t", "1");
    let answers = transport.publish(std::slice::from_ref(&message)).await;
    assert_eq!(answers, [Published::Confirmed]);

    let trap = crash::at("claim.after_commit").panic();
    let error = consumer.receive(1, TIMEOUT).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(trap.fired(), 1);

    // Its deliveries come again when their leases expire.
    let received = consumer.receive(1, TIMEOUT).await.unwrap();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].message.id, message.id);
}
