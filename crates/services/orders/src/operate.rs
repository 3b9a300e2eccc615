//! What a person may do to an order: cancel it before it is sent, redrive it when it was aborted.

use postrider::{
    Error,
    lease::{Operator, Queue},
    ledger::{Key, Ledger, LedgerError, Outcome},
};
use serde_json::json;
use sqlx::PgPool;

use crate::{
    OUTBOX_ORDERS, counters,
    model::OutboxStatus,
    store::{self, Standing},
};

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such order, or its row was cleaned away.
    #[error("No order with this key can be changed: it does not exist or was cleaned away.")]
    Unknown,
    /// It is too late to cancel.
    #[error("The order is {status} and can't be cancelled: {why}.")]
    NotCancellable {
        /// Where it stands.
        status: OutboxStatus,
        /// What stands against it.
        why: &'static str,
    },
    /// It can't be sent anew.
    #[error("The order is {status} and can't be redriven: {why}.")]
    NotRedrivable {
        /// Where it stands.
        status: OutboxStatus,
        /// What stands against it.
        why: &'static str,
    },
    /// The database failed.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Ledger(error.into())
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Ledger(error.into())
    }
}

/// Calls an order off that certainly never reached the broker.
pub(crate) async fn cancel(pool: &PgPool, key: &Key, operator: &Operator) -> Result<(), Refused> {
    let mut tx = pool.begin().await?;
    let Standing {
        id, status, sent, ..
    } = store::lock(&mut tx, key).await?.ok_or(Refused::Unknown)?;
    let refused = |why| Refused::NotCancellable { status, why };
    match status {
        OutboxStatus::Succeeded => return Err(refused("the broker has it")),
        OutboxStatus::Aborted => return Err(refused("it is finished")),
        OutboxStatus::Pending | OutboxStatus::Sending | OutboxStatus::Failed if sent => {
            return Err(refused("it may have reached the broker; cancel it there"));
        }
        OutboxStatus::Pending | OutboxStatus::Sending | OutboxStatus::Failed => {}
    }
    Queue::new(&OUTBOX_ORDERS)?
        .cancel(&mut tx, operator, &[id])
        .await?;
    store::called_off(&mut tx, id).await?;
    let result = json!({ "reason_code": "CANCELLED", "message": "cancelled before it was sent" });
    Ledger::default()
        .finish(&mut tx, key, Outcome::Failed, Some(result))
        .await?;
    tx.commit().await?;
    counters::aborted(1);
    tracing::info!(
        key = key.key(),
        status = "aborted",
        error_code = "CANCELLED",
        by = operator.name,
        "order cancelled"
    );
    Ok(())
}

/// Lets an aborted order begin anew. That it may be stale by now is the operator's to know; that its customer does not
/// want it any more is not the operator's to overrule.
pub(crate) async fn redrive(pool: &PgPool, key: &Key, operator: &Operator) -> Result<(), Refused> {
    let mut tx = pool.begin().await?;
    let Standing {
        id,
        status,
        expired,
        cancelled,
        ..
    } = store::lock(&mut tx, key).await?.ok_or(Refused::Unknown)?;
    let refused = |why| Refused::NotRedrivable { status, why };
    match status {
        OutboxStatus::Aborted if cancelled => {
            return Err(refused("it was cancelled; post a new order"));
        }
        OutboxStatus::Aborted if expired => {
            return Err(refused("its expires_at has passed; post a new order"));
        }
        OutboxStatus::Aborted => {}
        OutboxStatus::Pending
        | OutboxStatus::Sending
        | OutboxStatus::Failed
        | OutboxStatus::Succeeded => {
            return Err(refused("only an aborted order is"));
        }
    }
    Ledger::default().reopen(&mut tx, key).await?;
    Queue::new(&OUTBOX_ORDERS)?
        .redrive(&mut tx, operator, &[id])
        .await?;
    tx.commit().await?;
    tracing::info!(
        key = key.key(),
        status = "pending",
        by = operator.name,
        "order redriven"
    );
    Ok(())
}
