//! Accepts orders: ledger entry and outbox row commit together, and many orders share one commit.
//!
//! Without an ordering that is one statement: one round trip, one wait for the disk. Replays write nothing and wait for no
//! disk; what is recorded of them is read once for the whole batch. Replays tend to come together, so if the last batch was
//! mostly replays, the next one is read first and only unknown keys are accepted.
//!
//! Each caller is answered once its own commit is durable. Replays within one batch are answered as if they had arrived one
//! after another. One bad order fails alone.

use std::collections::{HashMap, HashSet, hash_map::Entry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use postrider::{
    Error,
    batcher::{Batcher, BatcherOptions},
    digest::Digest,
    ledger::{Acceptance, Key, Ledger, LedgerError},
    wake::Waker,
};
use sqlx::{Connection, PgConnection, PgPool};

use crate::{
    OUTBOX_ORDERS, gauges,
    model::{Order, OrderView},
    settings::Ordering,
    store,
};

/// How long a request waits while another process accepts the same key.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Deadline of a batch: a connection that goes silent costs one batch no more than this.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of posting an order.
#[derive(Debug, Clone, PartialEq)]
pub enum AcceptOutcome {
    /// The first order with this key.
    Accepted(OrderView),
    /// The same order was accepted before.
    Replay(OrderView),
    /// A different order was accepted before under the same key.
    Mismatch,
}

/// Accepts orders in batches.
#[derive(Debug)]
pub(crate) struct Acceptor {
    batcher: Batcher<Order, AcceptOutcome, LedgerError>,
}

impl Acceptor {
    /// Starts the lanes, which end with the acceptor. Must be called inside a tokio runtime.
    pub fn start(pool: &PgPool, waker: &Waker, ordering: Ordering) -> Self {
        let options = BatcherOptions {
            lanes: 2,
            max_batch: 500,
            call_timeout: CALL_TIMEOUT,
            ..BatcherOptions::new("order intake")
        };
        let writer = Arc::new(Writer {
            waker: waker.clone(),
            ordering,
            expects_replays: AtomicBool::new(false),
        });
        let batcher = Batcher::with_connection(pool.clone(), options, move |connection, batch| {
            let writer = Arc::clone(&writer);
            Box::pin(async move { writer.accept(connection, batch).await })
        });
        Self { batcher }
    }

    /// Accepts an order; returns once that is durable.
    pub async fn accept(&self, order: Order) -> Result<AcceptOutcome, LedgerError> {
        let key = order.key.key().to_owned();
        self.batcher.call_keyed(key, order).await
    }
}

struct Writer {
    waker: Waker,
    ordering: Ordering,
    /// Only a hint, so the lanes may share it.
    expects_replays: AtomicBool,
}

impl Writer {
    async fn accept(
        &self,
        connection: &mut PgConnection,
        orders: &[Order],
    ) -> Result<Vec<AcceptOutcome>, LedgerError> {
        // Of several orders with one key the first counts.
        let mut firsts: HashMap<&str, &Order> = HashMap::with_capacity(orders.len());
        let mut distinct: Vec<&Order> = Vec::with_capacity(orders.len());
        for order in orders {
            if let Entry::Vacant(entry) = firsts.entry(order.key.key()) {
                entry.insert(order);
                distinct.push(order);
            }
        }
        let mut recorded = HashMap::new();
        if self.expects_replays.load(Relaxed) {
            recorded = find(connection, distinct.iter().map(|order| order.key.key())).await?;
        }
        let unknown: Vec<&Order> = distinct
            .iter()
            .copied()
            .filter(|order| !recorded.contains_key(order.key.key()))
            .collect();
        postrider_crashpoint::point!("orders.before_accept").map_err(Error::from)?;
        let accepted = self.insert(connection, &unknown).await?;
        postrider_crashpoint::point!("orders.after_accept").map_err(Error::from)?;
        if !accepted.is_empty() {
            gauges::enqueued(accepted.len() as u64);
            self.waker.wake(&OUTBOX_ORDERS);
        }
        let mostly_replays = accepted.len() * 2 < distinct.len();
        self.expects_replays.store(mostly_replays, Relaxed);
        let replayed = unknown
            .iter()
            .map(|order| order.key.key())
            .filter(|key| !accepted.contains(*key));
        recorded.extend(find(connection, replayed).await?);
        orders
            .iter()
            .map(|order| {
                let key = order.key.key();
                let first = firsts.get(key).filter(|_| accepted.contains(key));
                let view = match (first, recorded.get(key)) {
                    (Some(first), _) if std::ptr::eq(*first, order) => {
                        return Ok(AcceptOutcome::Accepted(OrderView::fresh(order)));
                    }
                    (Some(first), _) => OrderView::fresh(first),
                    (None, Some(view)) => view.clone(),
                    (None, None) => return Err(LedgerError::Unknown(order.key.clone())),
                };
                Ok(if view.request_digest == order.digest.to_string() {
                    AcceptOutcome::Replay(view)
                } else {
                    AcceptOutcome::Mismatch
                })
            })
            .collect()
    }

    /// Accepts the orders whose keys are unused, each with its row; returns those keys.
    async fn insert(
        &self,
        connection: &mut PgConnection,
        orders: &[&Order],
    ) -> Result<HashSet<String>, LedgerError> {
        if orders.is_empty() {
            return Ok(HashSet::new());
        }
        if self.ordering == Ordering::None {
            return Ok(store::accept(connection, orders, LOCK_TIMEOUT).await?);
        }
        let requests: Vec<(Key, Digest)> = orders
            .iter()
            .map(|order| (order.key.clone(), order.digest))
            .collect();
        let mut tx = connection.begin().await?;
        let acceptances = Ledger::new(LOCK_TIMEOUT)
            .accept_many(&mut tx, &requests)
            .await?;
        let new: Vec<&Order> = orders
            .iter()
            .zip(&acceptances)
            .filter(|(_, acceptance)| **acceptance == Acceptance::Accepted)
            .map(|(order, _)| *order)
            .collect();
        store::insert_ordered(&mut tx, &new, self.ordering).await?;
        tx.commit().await?;
        Ok(new.iter().map(|order| order.key.key().to_owned()).collect())
    }
}

async fn find(
    connection: &mut PgConnection,
    keys: impl Iterator<Item = &str>,
) -> Result<HashMap<String, OrderView>, LedgerError> {
    let keys: Vec<&str> = keys.collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let views = store::views(connection, &keys).await?;
    Ok(views
        .into_iter()
        .map(|view| (view.idempotency_key.clone(), view))
        .collect())
}
