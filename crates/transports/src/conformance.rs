//! The promise of a transport, as tests that every transport runs against a real server.
//!
//! Each promise is an async function with a telling name; [`conformance_tests!`](crate::conformance_tests) turns all of
//! them into tests for one [`Harness`]. Names of topics and groups are new in each test, so that all can share a server.
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
use postrider::failure::{Category, Failure};
use postrider::retry::Policy;
use postrider::runtime::Verdict;
use postrider::transport::{
    Consumer, Delivery, Message, MessageId, Published, Subscription, Transport,
};
use tokio::time::Instant;

/// Long enough for a busy machine; a promise that is kept never waits so long.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// How long to watch for something that must not happen.
pub const QUIET: Duration = Duration::from_millis(400);
/// A lease short enough that a lost consumer is noticed soon.
pub const LEASE: Duration = Duration::from_millis(1_500);

/// A message that was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Which.
    pub id: MessageId,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it was given up.
    pub code: String,
}

/// A server with this transport, for one test.
pub trait Harness: Send + Sync {
    /// A client of its own, as another process would be.
    fn connect(&self) -> BoxFuture<'_, Arc<dyn Transport>>;

    /// The group's dead letters.
    fn dead_letters<'a>(&'a self, group: &'a str) -> BoxFuture<'a, Vec<DeadLetter>>;

    /// Does the server recognise a message that it has already? Where it does not, consumers do, by the id.
    fn stores_once(&self) -> bool {
        true
    }
}

/// A harness whose server can be stopped and started again with what it stored.
pub trait Outage: Harness {
    /// Stops the server; returns when it is gone.
    fn stop(&self) -> BoxFuture<'_, ()>;

    /// Starts it again; returns when it answers.
    fn start(&self) -> BoxFuture<'_, ()>;
}

/// Makes a test of every promise: `conformance_tests!(make_harness, make_outage_harness)`, both async functions that give
/// a harness, or none where there is no such server.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:path, $outage:path) => {
        $crate::conformance_tests!(@each $harness, publishing:
            confirmed_means_stored,
            a_message_that_nobody_subscribed_to_is_unroutable,
            a_message_published_twice_keeps_its_id,
            a_large_message_arrives_whole,
            headers_and_trace_context_are_kept,
            every_group_gets_every_message,
            a_late_consumer_finds_what_came_since_its_subscription,
        );
        $crate::conformance_tests!(@each $harness, consuming:
            a_dead_consumers_messages_move_on,
            a_forgotten_delivery_comes_again,
            a_living_consumer_keeps_its_messages,
            what_is_put_off_comes_again_at_no_cost,
            failed_attempts_are_counted,
            a_message_that_always_fails_is_a_dead_letter,
            a_permanent_failure_is_a_dead_letter_at_once,
            closing_gives_back_at_no_cost,
            a_consumer_holds_no_more_than_its_prefetch,
            consumers_of_a_group_share_its_messages,
            a_dropped_receive_loses_nothing,
        );
        $crate::conformance_tests!(@each $harness, order:
            messages_of_a_key_come_in_order,
            a_failing_message_holds_back_its_key_and_no_other,
        );
        $crate::conformance_tests!(@each $outage, outage:
            a_server_that_is_away_at_the_start_is_waited_for,
            a_restart_in_the_middle_loses_nothing,
        );
    };
    (@each $harness:path, $module:ident: $($promise:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                // None: the server is not installed, which was said.
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
    pub fn new(what: &str) -> Self {
        let tag = &uuid::Uuid::new_v4().simple().to_string()[..12];
        Self {
            topic: format!("conformance.{what}.{tag}"),
            group: format!("{what}-{tag}"),
        }
    }

    pub fn subscription(&self) -> Subscription {
        Subscription::new(&self.group, [&self.topic])
            .unwrap()
            .lease(LEASE)
            .policy(soon(5))
    }

    pub fn message(&self, number: usize) -> Message {
        let payload = format!("{{\"number\":{number}}}");
        Message::new(new_id(), self.topic.as_str(), payload)
    }

    pub fn messages(&self, count: usize) -> Vec<Message> {
        (0..count).map(|number| self.message(number)).collect()
    }
}

/// Tries again at once, up to so many attempts.
pub(crate) fn soon(attempts: u32) -> Policy {
    Policy::fixed(Duration::from_millis(10), attempts).unwrap()
}

pub(crate) fn new_id() -> MessageId {
    MessageId::new(uuid::Uuid::new_v4())
}

pub(crate) fn failure() -> Failure {
    Failure::with_category("ON_PURPOSE", Category::System, "the test says no")
}

pub(crate) fn try_again() -> Verdict {
    Verdict::retry(failure())
}

/// Publishes, and insists on confirmation.
pub(crate) async fn publish(transport: &dyn Transport, messages: &[Message]) {
    let answers = transport.publish(messages).await;
    assert_eq!(answers, vec![Published::Confirmed; messages.len()]);
}

/// Receives so many deliveries, across calls and over passing troubles.
pub(crate) async fn receive(consumer: &dyn Consumer, count: usize) -> VecDeque<Delivery> {
    let end = Instant::now() + DEADLINE;
    let mut deliveries = VecDeque::with_capacity(count);
    while deliveries.len() < count {
        assert!(
            Instant::now() < end,
            "{} of {count} deliveries came in time",
            deliveries.len()
        );
        match consumer
            .receive(count - deliveries.len(), Duration::from_millis(500))
            .await
        {
            Ok(more) => deliveries.extend(more),
            Err(error) => assert!(error.is_transient(), "receiving failed for good: {error}"),
        }
    }
    deliveries
}

pub(crate) async fn receive_one(consumer: &dyn Consumer) -> Delivery {
    receive(consumer, 1).await.pop_front().unwrap()
}

/// Insists that nothing comes.
pub(crate) async fn receive_nothing(consumer: &dyn Consumer) {
    let deliveries = consumer.receive(10, QUIET).await.unwrap();
    assert!(deliveries.is_empty(), "came all the same: {deliveries:?}");
}

pub(crate) fn number(message: &Message) -> usize {
    let value: serde_json::Value = message.read().unwrap();
    usize::try_from(value["number"].as_u64().unwrap()).unwrap()
}
