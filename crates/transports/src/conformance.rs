//! The conformance suite: tests that every transport passes against a real server.
//!
//! Each promise is an async function; [`conformance_tests!`](crate::conformance_tests) makes a test of each for one [`Harness`].
//! Each test uses new topic and group names, so that all can share a server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken promise fails the test that checks it"
)]

pub mod consuming;
pub mod order;
pub mod outage;
pub mod publishing;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::RetryPolicy;
use postrider::Verdict;
use postrider::failure::{Category, Failure};
use postrider::transport::{
    Consumer, Delivery, Message, MessageId, Published, Subscription, Transport,
};
use tokio::time::Instant;

/// Long enough for a busy machine; a test that passes never waits this long.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// How long to watch for something that must not happen.
pub const QUIET_PERIOD: Duration = Duration::from_millis(400);
/// A lease short enough that a lost consumer is detected quickly.
pub const LEASE: Duration = Duration::from_millis(1_500);

/// A dead letter of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message.
    pub id: MessageId,
    /// Number of attempts.
    pub attempts: u32,
    /// The error code.
    pub code: String,
}

/// A server with this transport, for one test.
pub trait Harness: Send + Sync {
    /// A separate client, as another process would have.
    fn connect(&self) -> BoxFuture<'_, Arc<dyn Transport>>;

    /// The group's dead letters.
    fn dead_letters<'a>(&'a self, group: &'a str) -> BoxFuture<'a, Vec<DeadLetter>>;

    /// Does the server deduplicate messages by id? If not, consumers do.
    fn stores_once(&self) -> bool {
        true
    }
}

/// A harness whose server can be stopped, and started again with its data.
pub trait Restartable: Harness {
    /// Stops the server and waits until it is gone.
    fn stop(&self) -> BoxFuture<'_, ()>;

    /// Starts it again and waits until it answers.
    fn start(&self) -> BoxFuture<'_, ()>;
}

/// Makes a test of every promise: `conformance_tests!(make_harness, make_restartable_harness)`. Both are async functions that
/// return a harness, or `None` if the server isn't installed.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:path, $restartable:path) => {
        $crate::conformance_tests!(@each $harness, publishing:
            confirmed_means_stored,
            a_message_without_subscribers_is_unroutable,
            a_message_published_twice_keeps_its_id,
            a_large_message_arrives_whole,
            headers_and_trace_context_are_kept,
            every_group_gets_every_message,
            a_subscription_keeps_messages_for_a_late_consumer,
        );
        $crate::conformance_tests!(@each $harness, consuming:
            a_lost_consumers_messages_go_to_another,
            a_dropped_delivery_is_redelivered,
            a_living_consumer_keeps_its_messages,
            a_snoozed_message_comes_again_without_spending_an_attempt,
            failed_attempts_are_counted,
            a_message_that_always_fails_becomes_a_dead_letter,
            a_permanent_failure_becomes_a_dead_letter_at_once,
            closing_releases_messages_without_spending_an_attempt,
            a_consumer_holds_no_more_than_its_prefetch,
            consumers_of_a_group_share_its_messages,
            a_dropped_receive_loses_nothing,
        );
        $crate::conformance_tests!(@each $harness, order:
            messages_of_a_key_arrive_in_order,
            a_failing_message_holds_back_its_key_and_no_other,
        );
        $crate::conformance_tests!(@each $restartable, outage:
            clients_recover_from_a_server_that_is_down_at_the_start,
            a_restart_in_the_middle_loses_nothing,
        );
    };
    (@each $harness:path, $module:ident: $($promise:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                // None: the server isn't installed; the skip was printed.
                if let Some(harness) = $harness().await {
                    $crate::conformance::$module::$promise(&harness).await;
                }
            }
        )*
    };
}

/// Names that no other test uses.
pub(crate) struct Names {
    pub topic: String,
    pub group: String,
}

impl Names {
    pub fn new(name: &str) -> Self {
        let tag = &uuid::Uuid::new_v4().simple().to_string()[..12];
        Self {
            topic: format!("conformance.{name}.{tag}"),
            group: format!("{name}-{tag}"),
        }
    }

    pub fn subscription(&self) -> Subscription {
        Subscription::new(&self.group, [&self.topic])
            .unwrap()
            .lease(LEASE)
            .policy(retry_immediately(5))
    }

    pub fn message(&self, number: usize) -> Message {
        let payload = format!("{{\"number\":{number}}}");
        Message::new(new_id(), self.topic.as_str(), payload)
    }

    pub fn messages(&self, count: usize) -> Vec<Message> {
        (0..count).map(|number| self.message(number)).collect()
    }
}

/// A policy that retries at once, up to this number of attempts.
pub(crate) fn retry_immediately(attempts: u32) -> RetryPolicy {
    RetryPolicy::fixed(Duration::from_millis(10), attempts).unwrap()
}

pub(crate) fn new_id() -> MessageId {
    MessageId::new(uuid::Uuid::new_v4())
}

pub(crate) fn failure() -> Failure {
    Failure::with_category("ON_PURPOSE", Category::System, "failed by the test")
}

pub(crate) fn retry() -> Verdict {
    Verdict::retry(failure())
}

/// Publishes and asserts that all are confirmed.
pub(crate) async fn publish(transport: &dyn Transport, messages: &[Message]) {
    let answers = transport.publish(messages).await;
    assert_eq!(answers, vec![Published::Confirmed; messages.len()]);
}

/// Receives this number of deliveries, over several calls and transient errors.
pub(crate) async fn receive(consumer: &dyn Consumer, count: usize) -> VecDeque<Delivery> {
    let end = Instant::now() + DEADLINE;
    let mut deliveries = VecDeque::with_capacity(count);
    while deliveries.len() < count {
        assert!(
            Instant::now() < end,
            "{} of {count} deliveries arrived in time",
            deliveries.len()
        );
        match consumer
            .receive(count - deliveries.len(), Duration::from_millis(500))
            .await
        {
            Ok(more) => deliveries.extend(more),
            Err(error) => assert!(
                error.is_transient(),
                "receiving failed permanently: {error}"
            ),
        }
    }
    deliveries
}

pub(crate) async fn receive_one(consumer: &dyn Consumer) -> Delivery {
    receive(consumer, 1).await.pop_front().unwrap()
}

/// Asserts that nothing arrives.
pub(crate) async fn receive_nothing(consumer: &dyn Consumer) {
    let deliveries = consumer.receive(10, QUIET_PERIOD).await.unwrap();
    assert!(
        deliveries.is_empty(),
        "unexpected deliveries: {deliveries:?}"
    );
}

pub(crate) fn number(message: &Message) -> usize {
    let value: serde_json::Value = message.read().unwrap();
    usize::try_from(value["number"].as_u64().unwrap()).unwrap()
}
