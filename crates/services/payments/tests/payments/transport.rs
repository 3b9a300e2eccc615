//! A transport that can be unavailable and deliver duplicates.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

use futures_util::future::BoxFuture;
use postrider::{
    failure::Failure,
    transport::{Consumer, Message, MessageId, Published, Subscription, Transport, TransportError},
};
use uuid::Uuid;

/// Forwards to a real transport, with switchable faults.
#[derive(Debug)]
pub struct FaultyTransport {
    inner: Arc<dyn Transport>,
    /// Publishing fails.
    pub unavailable: AtomicBool,
    /// Every message is published twice, the second time under another id, so only its content reveals the duplicate.
    pub duplicates: AtomicBool,
    /// Number of publish calls.
    pub publish_calls: AtomicU32,
}

impl FaultyTransport {
    pub fn over(inner: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            unavailable: AtomicBool::new(false),
            duplicates: AtomicBool::new(false),
            publish_calls: AtomicU32::new(0),
        })
    }
}

impl Transport for FaultyTransport {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(async move {
            self.publish_calls.fetch_add(1, SeqCst);
            if self.unavailable.load(SeqCst) {
                let failure = Failure::new("NETWORK_ERROR", "the broker is unavailable");
                return vec![Published::Unavailable(failure); batch.len()];
            }
            if self.duplicates.load(SeqCst) {
                let again = |message: &Message| Message {
                    id: MessageId::new(Uuid::new_v4()),
                    ..message.clone()
                };
                let copies: Vec<Message> = batch.iter().map(again).collect();
                self.inner.publish(&copies).await;
            }
            self.inner.publish(batch).await
        })
    }

    fn declare<'a>(
        &'a self,
        topic: &'a str,
        group: &'a str,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.inner.declare(topic, group)
    }

    fn subscribe<'a>(
        &'a self,
        subscription: Subscription,
    ) -> BoxFuture<'a, Result<Box<dyn Consumer>, TransportError>> {
        self.inner.subscribe(subscription)
    }
}
