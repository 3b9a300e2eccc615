//! A transport between two sides that can be away, and that delivers things twice.

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

/// Passes everything on to a real transport, unless told otherwise.
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Transport>,
    /// Nothing can be published.
    pub away: AtomicBool,
    /// Every message is published a second time under another id: a duplicate that only its content betrays.
    pub doubles: AtomicBool,
    /// How often somebody tried to publish.
    pub tries: AtomicU32,
}

impl Faulty {
    pub fn over(inner: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            away: AtomicBool::new(false),
            doubles: AtomicBool::new(false),
            tries: AtomicU32::new(0),
        })
    }
}

impl Transport for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn publish<'a>(&'a self, batch: &'a [Message]) -> BoxFuture<'a, Vec<Published>> {
        Box::pin(async move {
            self.tries.fetch_add(1, SeqCst);
            if self.away.load(SeqCst) {
                let failure = Failure::new("NETWORK_ERROR", "the broker is away");
                return vec![Published::Unavailable(failure); batch.len()];
            }
            if self.doubles.load(SeqCst) {
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
