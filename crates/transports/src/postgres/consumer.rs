//! A consumer: its outstanding deliveries and its lifecycle.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::Verdict;
use postrider::lease::{Lease, Outcome, Settlement};
use postrider::transport::{
    Consumer, Delivery, Fate, Receipt, Subscription, Transport, TransportError,
};
use sqlx::{PgConnection, PgPool};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::{PostgresTransport, heartbeat, receive::Rescue};

/// A delivery that was received and not settled yet.
#[derive(Debug)]
pub(super) struct Outstanding {
    pub lease: Lease,
    pub bytes: usize,
    /// Its consumer was lost before: only one such delivery is outstanding at a time.
    pub suspect: bool,
}

/// What the consumer and its heartbeat share.
#[derive(Debug)]
pub(super) struct Shared {
    pub transport: PostgresTransport,
    pub subscription: Subscription,
    /// Written to every lease.
    pub owner: String,
    /// An async lock: renewal reads the leases while it talks to the database.
    pub outstanding: tokio::sync::Mutex<HashMap<u64, Outstanding>>,
    pub count: AtomicUsize,
    pub bytes: AtomicUsize,
    pub suspect_outstanding: AtomicBool,
    pub next_receipt: AtomicU64,
    /// Receipts that were dropped: their leases expire.
    pub dropped: mpsc::UnboundedSender<u64>,
    /// Signals capacity, or that a key's next delivery may be due.
    pub wake: watch::Sender<()>,
    pub rescue: tokio::sync::Mutex<Rescue>,
    /// Claimed but not received yet.
    pub ready: Mutex<VecDeque<Delivery>>,
    /// Allows one claim at a time, so that the prefetch limit holds.
    pub claiming: tokio::sync::Mutex<()>,
    /// Ordering keys to promote later.
    pub busy_keys: Mutex<Vec<String>>,
    pub closed: AtomicBool,
}

impl Shared {
    /// Registers a new delivery and returns its receipt.
    pub async fn register(&self, delivery: Outstanding) -> Receipt {
        let number = self.next_receipt.fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(delivery.bytes, Ordering::Relaxed);
        if delivery.suspect {
            self.suspect_outstanding.store(true, Ordering::Relaxed);
        }
        self.outstanding.lock().await.insert(number, delivery);
        Receipt::new(number, self.dropped.clone())
    }

    /// Removes a delivery and returns its lease; none if it was lost.
    pub async fn remove(&self, number: u64) -> Option<Lease> {
        let delivery = self.outstanding.lock().await.remove(&number)?;
        self.uncount(&delivery);
        Some(delivery.lease)
    }

    pub fn uncount(&self, delivery: &Outstanding) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(delivery.bytes, Ordering::Relaxed);
        if delivery.suspect {
            self.suspect_outstanding.store(false, Ordering::Relaxed);
        }
        self.wake.send_replace(());
    }

    pub fn promote_later(&self, keys: Vec<String>) {
        if !keys.is_empty() {
            let mut busy = self
                .busy_keys
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            busy.extend(keys);
        }
    }

    pub fn group(&self) -> &str {
        self.subscription.group()
    }
}

/// Receives for one group from the Postgres transport. If it's dropped without [`Consumer::close`], its deliveries go to other
/// consumers when their leases expire.
#[derive(Debug)]
pub(super) struct PostgresConsumer {
    pub shared: Arc<Shared>,
    heartbeat: AbortOnDropHandle<()>,
}

impl PostgresConsumer {
    pub fn start(transport: PostgresTransport, subscription: Subscription) -> Self {
        let (dropped, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            transport,
            subscription,
            owner: format!("{:08x}", rand::random::<u32>()),
            outstanding: tokio::sync::Mutex::new(HashMap::new()),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            suspect_outstanding: AtomicBool::new(false),
            next_receipt: AtomicU64::new(1),
            dropped,
            wake: watch::Sender::new(()),
            rescue: tokio::sync::Mutex::new(Rescue::default()),
            ready: Mutex::new(VecDeque::new()),
            claiming: tokio::sync::Mutex::new(()),
            busy_keys: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
        });
        let heartbeat = tokio::spawn(heartbeat::run(Arc::clone(&shared), receiver));
        Self {
            shared,
            heartbeat: AbortOnDropHandle::new(heartbeat),
        }
    }

    async fn release_all(self) -> Result<(), TransportError> {
        self.shared.closed.store(true, Ordering::Relaxed);
        // With this lock no claim is in progress, and none starts any more.
        let _claiming = self.shared.claiming.lock().await;
        drop(self.heartbeat);
        let outstanding = std::mem::take(&mut *self.shared.outstanding.lock().await);
        let batch: Vec<Settlement> = outstanding
            .into_values()
            .map(|delivery| Settlement::new(delivery.lease, Outcome::Release))
            .collect();
        if !batch.is_empty() {
            self.shared.persist(&batch).await?;
        }
        Ok(())
    }
}

impl Consumer for PostgresConsumer {
    fn receive(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(self.shared.receive(max, wait))
    }

    fn settle(
        &self,
        batch: Vec<(Receipt, Verdict)>,
    ) -> BoxFuture<'_, Result<Vec<Fate>, TransportError>> {
        Box::pin(self.shared.settle(batch))
    }

    fn settle_in<'a>(
        &'a self,
        transaction: &'a mut PgConnection,
        receipts: Vec<Receipt>,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(self.shared.settle_in(transaction, receipts))
    }

    fn shares<'a>(&'a self, pool: &'a PgPool) -> BoxFuture<'a, Result<bool, TransportError>> {
        self.shared.transport.shares(pool)
    }

    fn held(&self) -> usize {
        self.shared.count.load(Ordering::Relaxed)
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), TransportError>> {
        Box::pin(self.release_all())
    }
}
