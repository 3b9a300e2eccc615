//! The facade that HTTP, the console and tests call: accept, get, list, cancel, redrive.

mod accept;

use std::sync::Arc;

use postrider::{
    lease::{Operator, Queue},
    ledger::{Key, Ledger, Outcome},
    wake::Waker,
};
use postrider_inspect::timeline::Timeline;
use postrider_web::{Cursor, Limit, Page, Problem, list_id};
use serde_json::json;
use sqlx::PgPool;

use crate::{
    OUTBOX_ORDERS, OrderError, gauges,
    model::{Order, OrderView, OutboxStatus},
    settings::Ordering,
    store::{self, Filter, ListedOrder},
    timeline,
};
use accept::Acceptor;

pub use accept::AcceptOutcome;

/// The listing's name in its cursors.
const LIST: &str = "orders";

/// The orders service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Orders(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    waker: Waker,
    acceptor: Acceptor,
}

impl Orders {
    /// Starts accepting orders. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, ordering: Ordering) -> Self {
        gauges::register();
        let waker = Waker::new(pool.clone());
        let acceptor = Acceptor::start(&pool, &waker, ordering);
        Self(Arc::new(Inner {
            pool,
            waker,
            acceptor,
        }))
    }

    /// Accepts an order, or returns what is recorded under its key. Returns once that is durable.
    pub async fn accept(&self, order: Order) -> Result<AcceptOutcome, OrderError> {
        Ok(self.0.acceptor.accept(order).await?)
    }

    /// The order accepted under this key.
    pub async fn get(&self, key: &str) -> Result<Option<OrderView>, sqlx::Error> {
        Ok(store::views(&self.0.pool, &[key]).await?.pop())
    }

    /// One page of orders, newest first.
    pub async fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: Limit,
    ) -> Result<Page<ListedOrder>, Problem> {
        let list = list_id(LIST, filter)?;
        let before = cursor.map(|cursor| cursor.decode(&list)).transpose()?;
        let rows = store::list(&self.0.pool, filter, before, limit.rows_to_fetch()).await?;
        Page::from_rows(rows, limit, &list, |order| order.id)
    }

    /// The timeline of the order under this key; empty if there is none.
    pub async fn timeline(&self, key: &str) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::timeline(&self.0.pool, key).await
    }

    /// Cancels an order that has certainly never reached the broker.
    pub async fn cancel(&self, key: &Key, operator: &Operator) -> Result<(), OrderError> {
        let mut tx = self.0.pool.begin().await?;
        let order = store::lock(&mut tx, key)
            .await?
            .ok_or(OrderError::NotFound)?;
        let status = order.status;
        let refuse = |reason| OrderError::NotCancellable { status, reason };
        match status {
            OutboxStatus::Succeeded => return Err(refuse("the broker has accepted it")),
            OutboxStatus::Aborted => return Err(refuse("it is finished")),
            OutboxStatus::Pending | OutboxStatus::Sending | OutboxStatus::Failed if order.sent => {
                return Err(refuse("it may have reached the broker; cancel it there"));
            }
            OutboxStatus::Pending | OutboxStatus::Sending | OutboxStatus::Failed => {}
        }
        Queue::new(&OUTBOX_ORDERS)?
            .cancel(&mut tx, operator, &[order.id])
            .await?;
        store::clear_cause(&mut tx, order.id).await?;
        let result =
            json!({ "reason_code": "CANCELLED", "message": "cancelled before it was sent" });
        Ledger::default()
            .finish(&mut tx, key, Outcome::Failed, Some(result))
            .await?;
        tx.commit().await?;
        gauges::aborted(1);
        tracing::info!(
            key = key.key(),
            status = "aborted",
            error_code = "CANCELLED",
            by = operator.name,
            "order cancelled"
        );
        Ok(())
    }

    /// Gives an aborted order a fresh set of attempts. Whether a stale order may be sent is the operator's decision; a
    /// customer's cancel is final.
    pub async fn redrive(&self, key: &Key, operator: &Operator) -> Result<(), OrderError> {
        let mut tx = self.0.pool.begin().await?;
        let order = store::lock(&mut tx, key)
            .await?
            .ok_or(OrderError::NotFound)?;
        let status = order.status;
        let refuse = |reason| OrderError::NotRedrivable { status, reason };
        match status {
            OutboxStatus::Aborted if order.cancelled => {
                return Err(refuse("it was cancelled; post a new order"));
            }
            OutboxStatus::Aborted if order.expired => {
                return Err(refuse("its expires_at has passed; post a new order"));
            }
            OutboxStatus::Aborted => {}
            OutboxStatus::Pending
            | OutboxStatus::Sending
            | OutboxStatus::Failed
            | OutboxStatus::Succeeded => {
                return Err(refuse("only an aborted order can be"));
            }
        }
        Ledger::default().reopen(&mut tx, key).await?;
        Queue::new(&OUTBOX_ORDERS)?
            .redrive(&mut tx, operator, &[order.id])
            .await?;
        tx.commit().await?;
        self.0.waker.wake(&OUTBOX_ORDERS);
        tracing::info!(
            key = key.key(),
            status = "pending",
            by = operator.name,
            "order redriven"
        );
        Ok(())
    }
}
