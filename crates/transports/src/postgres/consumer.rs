//! A consumer: what it holds, and its life.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::lease::{Lease, Outcome, Settlement};
use postrider::runtime::Verdict;
use postrider::transport::{
    Consumer, Delivery, Fate, Receipt, Subscription, Transport, TransportError,
};
use sqlx::{PgConnection, PgPool};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::{PostgresTransport, heartbeat, receive::Rescue};

/// A delivery that was handed out and not settled yet.
#[derive(Debug)]
pub(super) struct Held {
    pub lease: Lease,
    pub bytes: usize,
    /// It cost a consumer before: only one such is out at a time.
    pub suspect: bool,
}

/// What the consumer and its keeper share.
#[derive(Debug)]
pub(super) struct Shared {
    pub transport: PostgresTransport,
    pub subscription: Subscription,
    /// Written to every lease.
    pub owner: String,
    /// An async lock: renewal reads the leases while it talks to the database.
    pub held: tokio::sync::Mutex<HashMap<u64, Held>>,
    pub count: AtomicUsize,
    pub bytes: AtomicUsize,
    pub suspect_out: AtomicBool,
    pub next: AtomicU64,
    /// Receipts that were dropped: their leases are left to run out.
    pub dropped: mpsc::UnboundedSender<u64>,
    /// There is room again, or a key's next delivery is due: look.
    pub look: watch::Sender<()>,
    pub rescue: tokio::sync::Mutex<Rescue>,
    /// Claimed and not received yet.
    pub ready: Mutex<VecDeque<Delivery>>,
    /// One claim at a time, so that the prefetch is kept.
    pub turn: tokio::sync::Mutex<()>,
    /// Ordering keys to be promoted a little later.
    pub busy_keys: Mutex<Vec<String>>,
    pub closed: AtomicBool,
}

impl Shared {
    /// Takes note of a new delivery and says by which number it is found.
    pub async fn hold(&self, held: Held) -> Receipt {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(held.bytes, Ordering::Relaxed);
        if held.suspect {
            self.suspect_out.store(true, Ordering::Relaxed);
        }
        self.held.lock().await.insert(number, held);
        Receipt::new(number, self.dropped.clone())
    }

    /// Lets go of a delivery; none if it was lost meanwhile.
    pub async fn release(&self, number: u64) -> Option<Lease> {
        let held = self.held.lock().await.remove(&number)?;
        self.forget(&held);
        Some(held.lease)
    }

    pub fn forget(&self, held: &Held) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(held.bytes, Ordering::Relaxed);
        if held.suspect {
            self.suspect_out.store(false, Ordering::Relaxed);
        }
        self.look.send_replace(());
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

/// Receives for one group from the Postgres transport. Dropped without [`Consumer::close`], its deliveries go to others
/// when their leases have run out.
#[derive(Debug)]
pub(super) struct PostgresConsumer {
    pub shared: Arc<Shared>,
    keeper: AbortOnDropHandle<()>,
}

impl PostgresConsumer {
    pub fn start(transport: PostgresTransport, subscription: Subscription) -> Self {
        let (dropped, heard) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            transport,
            subscription,
            owner: format!("{:08x}", rand::random::<u32>()),
            held: tokio::sync::Mutex::new(HashMap::new()),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            suspect_out: AtomicBool::new(false),
            next: AtomicU64::new(1),
            dropped,
            look: watch::Sender::new(()),
            rescue: tokio::sync::Mutex::new(Rescue::default()),
            ready: Mutex::new(VecDeque::new()),
            turn: tokio::sync::Mutex::new(()),
            busy_keys: Mutex::new(Vec::new()),
            closed: AtomicBool::new(false),
        });
        let keeper = tokio::spawn(heartbeat::keep(Arc::clone(&shared), heard));
        Self {
            shared,
            keeper: AbortOnDropHandle::new(keeper),
        }
    }

    async fn give_back(self) -> Result<(), TransportError> {
        self.shared.closed.store(true, Ordering::Relaxed);
        // No claim is under way once we have the turn, and none begins any more.
        let _turn = self.shared.turn.lock().await;
        drop(self.keeper);
        let held = std::mem::take(&mut *self.shared.held.lock().await);
        let batch: Vec<Settlement> = held
            .into_values()
            .map(|held| Settlement::new(held.lease, Outcome::GiveBack))
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
        Box::pin(self.give_back())
    }
}
