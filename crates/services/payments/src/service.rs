//! The service behind the API: both sides, each with its own connections.

use std::sync::Arc;

use postrider::{Error, lease::Operator, wake::Waker};
use postrider_inspect::timeline::Timeline;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    accept::{Acceptor, Answer},
    counters,
    model::{Outcome, Payment, PaymentView, Status, Stuck},
    reconcile::{self, Report},
    settings::ReconcileSettings,
    store::{self, Filter, Known, Told},
    timeline,
    wallet::Wallet,
};

/// Accepts, shows, settles and reconciles payments. Cheap to clone.
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
    /// Starts accepting. Call it inside a tokio runtime.
    #[must_use]
    pub fn start(pool: PgPool, wallet: Wallet, reconcile: ReconcileSettings) -> Self {
        counters::register();
        let waker = Waker::new(pool.clone());
        let acceptor = Acceptor::start(&pool, &waker);
        Self(Arc::new(Inner {
            pool,
            acceptor,
            wallet,
            reconcile,
        }))
    }

    /// The other side.
    #[must_use]
    pub fn wallet(&self) -> &Wallet {
        &self.0.wallet
    }

    /// What happened to the payment with this uuid, or to those of the trace with this id, on both sides.
    pub async fn trail(&self, uuid: Uuid) -> Result<Vec<Timeline>, sqlx::Error> {
        timeline::trails(&self.0.pool, self.0.wallet.pool(), uuid).await
    }

    /// Accepts a payment, or tells what is known of it; returns when that is durable.
    pub async fn accept(&self, payment: Payment) -> Result<Answer, Error> {
        self.0.acceptor.accept(payment).await
    }

    /// What is known of a payment.
    pub async fn show(&self, uuid: Uuid) -> Result<Option<PaymentView>, sqlx::Error> {
        let known = store::known(&self.0.pool, &[uuid]).await?;
        Ok(self.explain(known).await.pop().map(|(_, view)| view))
    }

    /// The newest payments first, older than the place `before`; each with its place.
    pub async fn list(
        &self,
        filter: &Filter,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<(i64, PaymentView)>, sqlx::Error> {
        let known = store::list(&self.0.pool, filter, before, limit).await?;
        Ok(self.explain(known).await)
    }

    /// Settles a payment as the wallet tells.
    pub async fn settle(
        &self,
        uuid: Uuid,
        outcome: Outcome,
        reason: Option<&str>,
    ) -> Result<Told, sqlx::Error> {
        settle(&self.0.pool, uuid, outcome, reason).await
    }

    /// Settles what is stuck from the wallet's facts.
    pub async fn reconcile(&self, operator: &Operator) -> Result<Report, Error> {
        reconcile::once(
            &self.0.pool,
            &self.0.wallet,
            self.0.reconcile.after,
            operator,
        )
        .await
    }

    /// Gives every pending payment its reason. The wallet is asked, in one question for all of them; if it can't answer,
    /// the reason is what the orchestrator knows by itself.
    async fn explain(&self, known: Vec<Known>) -> Vec<(i64, PaymentView)> {
        let is_pending = |known: &&Known| known.view.status == Status::Pending;
        let pending: Vec<Uuid> = known
            .iter()
            .filter(is_pending)
            .map(|known| known.view.uuid)
            .collect();
        let facts = if pending.is_empty() {
            None
        } else {
            match self.0.wallet.facts(&pending).await {
                Ok(facts) => Some(facts),
                Err(error) => {
                    tracing::warn!(%error, "the wallet can't be asked why payments are pending");
                    None
                }
            }
        };
        known
            .into_iter()
            .map(
                |Known {
                     seq,
                     exhausted,
                     mut view,
                 }| {
                    if view.status == Status::Pending {
                        let fact = facts
                            .as_ref()
                            .and_then(|facts| facts.get(&view.uuid).copied());
                        view.reason = Some(Stuck::why(exhausted, fact).as_str().to_owned());
                    }
                    (seq, view)
                },
            )
            .collect()
    }
}

/// Settles a payment as the wallet tells; a failure always has a reason.
pub(crate) async fn settle(
    pool: &PgPool,
    uuid: Uuid,
    outcome: Outcome,
    reason: Option<&str>,
) -> Result<Told, sqlx::Error> {
    let reason = match outcome {
        Outcome::Succeed => None,
        Outcome::Failed => Some(reason.unwrap_or("UNSPECIFIED")),
    };
    let told = store::settle(pool, uuid, outcome, reason).await?;
    match told {
        Told::Settled => counters::settled(outcome, 1),
        Told::Repeated => {}
        Told::Contradicted(status) => {
            tracing::error!(%uuid, ?status, told = outcome.as_str(), "the payment has ended the other way: who is right?");
        }
        Told::Unknown => tracing::warn!(%uuid, "told the end of a payment that nobody asked for"),
    }
    Ok(told)
}
