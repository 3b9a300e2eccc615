//! The facade that HTTP, the console and tests call. It joins both sides, each with its own connections.

use std::sync::Arc;

use postrider::{lease::Operator, wake::Waker};
use postrider_inspect::timeline::Timeline;
use postrider_web::{Cursor, Limit, Page, Problem, list_id};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    PaymentError, gauges,
    model::{Outcome, Payment, PaymentView, PendingReason, Status},
    reconcile::{self, Report},
    requests::{
        self,
        accept::{AcceptOutcome, Acceptor},
        store::{self, Filter, StoredPayment},
    },
    settings::ReconcileSettings,
    timeline,
    wallet::Wallet,
};

/// The listing's name in its cursors.
const LIST: &str = "payments";

/// The payments service. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Payments(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pool: PgPool,
    acceptor: Acceptor,
    wallet: Wallet,
    reconcile: ReconcileSettings,
}

impl Payments {
    /// Starts accepting payments. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, wallet: Wallet, reconcile: ReconcileSettings) -> Self {
        gauges::register();
        let waker = Waker::new(pool.clone());
        let acceptor = Acceptor::start(&pool, &waker);
        Self(Arc::new(Inner {
            pool,
            acceptor,
            wallet,
            reconcile,
        }))
    }

    /// The wallet.
    #[must_use]
    pub fn wallet(&self) -> &Wallet {
        &self.0.wallet
    }

    /// Accepts a payment, or returns what is recorded under its uuid. Returns once that is durable.
    pub async fn accept(&self, payment: Payment) -> Result<AcceptOutcome, PaymentError> {
        Ok(self.0.acceptor.accept(payment).await?)
    }

    /// The payment with this uuid.
    pub async fn get(&self, uuid: Uuid) -> Result<Option<PaymentView>, sqlx::Error> {
        let payments = store::get(&self.0.pool, &[uuid]).await?;
        Ok(self.explain(payments).await.pop().map(|(_, view)| view))
    }

    /// One page of payments, newest first.
    pub async fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: Limit,
    ) -> Result<Page<PaymentView>, Problem> {
        let list = list_id(LIST, filter)?;
        let before = cursor.map(|cursor| cursor.decode(&list)).transpose()?;
        let rows = store::list(&self.0.pool, filter, before, limit.rows_to_fetch()).await?;
        let page = Page::from_rows(self.explain(rows).await, limit, &list, |(seq, _)| *seq)?;
        Ok(page.map(|(_, view)| view))
    }

    /// Settles a payment with the wallet's result. Repeating the same result is fine.
    pub async fn settle(
        &self,
        uuid: Uuid,
        outcome: Outcome,
        reason: Option<&str>,
    ) -> Result<(), PaymentError> {
        requests::settle(&self.0.pool, uuid, outcome, reason).await
    }

    /// Settles stuck payments from the wallet's records.
    pub async fn reconcile(&self, operator: &Operator) -> Result<Report, PaymentError> {
        let after = self.0.reconcile.after;
        Ok(reconcile::reconcile(&self.0.pool, &self.0.wallet, after, operator).await?)
    }

    /// The timelines of the payment with this uuid, or of the payments of the trace with this id, on both sides.
    pub async fn timeline(&self, uuid: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::timelines(&self.0.pool, self.0.wallet.pool(), uuid).await
    }

    /// Gives every pending payment its reason, with one query to the wallet for all of them. If the wallet is unavailable,
    /// the reason is what the requests' side knows by itself.
    async fn explain(&self, payments: Vec<StoredPayment>) -> Vec<(i64, PaymentView)> {
        let pending: Vec<Uuid> = payments
            .iter()
            .filter(|payment| payment.view.status == Status::Pending)
            .map(|payment| payment.view.uuid)
            .collect();
        let states = match self.0.wallet.states(&pending).await {
            Ok(states) => Some(states),
            Err(error) => {
                tracing::warn!(%error, "wallet unavailable; pending payments are shown without its reasons");
                None
            }
        };
        payments
            .into_iter()
            .map(|payment| {
                let mut view = payment.view;
                if view.status == Status::Pending {
                    let state = states
                        .as_ref()
                        .and_then(|states| states.get(&view.uuid).copied());
                    let reason = PendingReason::new(payment.exhausted, state);
                    view.reason = Some(reason.as_str().to_owned());
                }
                (payment.seq, view)
            })
            .collect()
    }
}
