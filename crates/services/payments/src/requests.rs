//! The requests' side: records payment requests and publishes one message each.
//!
//! [`accept`] writes a request and its outbox row in one transaction, [`worker`] publishes the outbox, and `settle`
//! records the result that the wallet calls back with.

pub mod accept;
pub mod cleaning;
pub(crate) mod http;
pub mod store;
mod table;
pub mod worker;

use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    PaymentError, gauges,
    model::{Outcome, Status},
};
use store::SettleOutcome;

pub use table::OUTBOX;
pub(crate) use table::{COLUMNS, HEADERS, MESSAGE_CHECK};

/// The topic of payment requests.
pub const TOPIC: &str = "payments.requested";

/// Settles a payment with the wallet's result. A failed payment always has a reason.
pub(crate) async fn settle(
    pool: &PgPool,
    uuid: Uuid,
    outcome: Outcome,
    reason: Option<&str>,
) -> Result<(), PaymentError> {
    let reason = match outcome {
        Outcome::Succeed => None,
        Outcome::Failed => Some(reason.unwrap_or("UNSPECIFIED")),
    };
    match store::settle(pool, uuid, outcome, reason).await? {
        SettleOutcome::Settled => gauges::settled(outcome, 1),
        SettleOutcome::Repeated => {}
        SettleOutcome::Conflict(status) => {
            tracing::error!(
                %uuid, status = Status::as_str(status), callback = outcome.as_str(),
                "the callback contradicts the payment's recorded status; compare the wallet's entries"
            );
            return Err(PaymentError::Settled { status });
        }
        SettleOutcome::NotFound => {
            tracing::warn!(%uuid, "callback for an unknown payment");
            return Err(PaymentError::NotFound);
        }
    }
    Ok(())
}
