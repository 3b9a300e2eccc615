//! Accepts payments: request and outbox row commit together, and many payments share one commit.
//!
//! Each caller is answered once its own commit is durable. Repetitions within one batch are answered as if they had
//! arrived one after another.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use postrider::{
    Error,
    batcher::{Batcher, BatcherOptions},
    wake::Waker,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::{OUTBOX, store};
use crate::{
    gauges,
    model::{Payment, PaymentReceipt, PaymentView, Status},
};

/// Deadline of a batch: a connection that goes silent costs one batch no more than this.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The result of posting a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptOutcome {
    /// The first payment with this uuid.
    Accepted(PaymentReceipt),
    /// The same payment was accepted before.
    Replay(PaymentReceipt),
    /// A different payment was accepted before under the same uuid.
    Mismatch,
}

/// Accepts payments in batches.
#[derive(Debug)]
pub(crate) struct Acceptor {
    batcher: Batcher<Payment, AcceptOutcome>,
}

impl Acceptor {
    /// Starts the lanes, which end with the acceptor. Must be called inside a tokio runtime.
    pub fn start(pool: &PgPool, waker: &Waker) -> Self {
        let options = BatcherOptions {
            lanes: 2,
            max_batch: 500,
            call_timeout: CALL_TIMEOUT,
            ..BatcherOptions::new("payment intake")
        };
        let waker = waker.clone();
        let batcher = Batcher::with_connection(pool.clone(), options, move |connection, batch| {
            let waker = waker.clone();
            Box::pin(async move { accept(connection, &waker, batch).await })
        });
        Self { batcher }
    }

    /// Accepts a payment; returns once that is durable.
    pub async fn accept(&self, payment: Payment) -> Result<AcceptOutcome, Error> {
        self.batcher.call_keyed(payment.uuid, payment).await
    }
}

async fn accept(
    connection: &mut PgConnection,
    waker: &Waker,
    payments: &[Payment],
) -> Result<Vec<AcceptOutcome>, Error> {
    let mut seen = HashSet::with_capacity(payments.len());
    let distinct: Vec<&Payment> = payments
        .iter()
        .filter(|payment| seen.insert(payment.uuid))
        .collect();
    postrider_crashpoint::point!("payments.before_accept")?;
    let mut new: HashSet<Uuid> = store::insert(connection, &distinct)
        .await?
        .into_iter()
        .collect();
    postrider_crashpoint::point!("payments.after_accept")?;
    if !new.is_empty() {
        gauges::accepted(new.len() as u64);
        waker.wake(&OUTBOX);
    }
    // The first post of each new uuid is accepted; every other one is compared with what is recorded.
    let accepted: Vec<bool> = payments
        .iter()
        .map(|payment| new.remove(&payment.uuid))
        .collect();
    let repeated: Vec<Uuid> = payments
        .iter()
        .zip(&accepted)
        .filter(|(_, accepted)| !**accepted)
        .map(|(payment, _)| payment.uuid)
        .collect();
    let recorded = recorded(connection, &repeated).await?;
    payments
        .iter()
        .zip(accepted)
        .map(|(payment, accepted)| {
            let uuid = payment.uuid;
            if accepted {
                let status = Status::Pending;
                return Ok(AcceptOutcome::Accepted(PaymentReceipt { uuid, status }));
            }
            let recorded = recorded.get(&uuid).ok_or_else(|| Error::Unreadable {
                what: "payments.request",
                problem: format!("request {uuid} has been deleted; requests must never be"),
            })?;
            let status = recorded.status;
            Ok(if is_same(payment, recorded) {
                AcceptOutcome::Replay(PaymentReceipt { uuid, status })
            } else {
                AcceptOutcome::Mismatch
            })
        })
        .collect()
}

async fn recorded(
    connection: &mut PgConnection,
    uuids: &[Uuid],
) -> Result<HashMap<Uuid, PaymentView>, Error> {
    if uuids.is_empty() {
        return Ok(HashMap::new());
    }
    let payments = store::get(connection, uuids).await?;
    Ok(payments
        .into_iter()
        .map(|payment| (payment.view.uuid, payment.view))
        .collect())
}

/// Amounts are compared by value.
fn is_same(payment: &Payment, recorded: &PaymentView) -> bool {
    payment.account_id == recorded.account_id
        && payment.money.to_string() == recorded.amount
        && payment.money.currency.code() == recorded.currency
        && payment.description == recorded.description
}
