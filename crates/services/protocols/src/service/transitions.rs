//! Transitions outside the pipeline: manual retry, review, and archiving of old dead letters.
//!
//! A new try retires the events of the previous one in the same transaction: waiting events are cancelled, leased ones
//! lose their lease, dead ones are archived. Nothing of an old try can change the new one.

use std::time::Duration;

use postrider::{
    Error,
    audit::{self, AuditEntry},
    lease::{Operator, Queue},
};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use crate::{
    OUTBOX, ProtocolError,
    error::MAX_REASON_CHARS,
    gauges,
    model::{Decision, Status, Step, Transition},
    store::{self, Change, ErrorReason, LockedProtocol},
};

/// Metadata that belongs to one try.
const METADATA_OF_A_TRY: &[&str] = &["error", "last_failure", "extraction", "grounding"];

/// Starts the next try of a failed protocol.
pub(super) async fn retry(
    pool: &PgPool,
    id: Uuid,
    operator: &Operator,
) -> Result<(), ProtocolError> {
    let mut tx = pool.begin().await?;
    let protocol = lock(&mut tx, id).await?;
    if !protocol.status.is_retryable() {
        return Err(ProtocolError::NotRetryable(protocol.status));
    }
    let transition = protocol.status.transition_to(Status::Uploaded)?;
    retire_events(&mut tx, id, operator).await?;
    start_next_try(&mut tx, id, &protocol, transition, Change::default()).await?;
    audit(&mut tx, operator, "retry", &protocol).await?;
    postrider_crashpoint::point!("protocols.before_retry").map_err(Error::from)?;
    tx.commit().await?;
    gauges::retried(1);
    tracing::info!(protocol = %id, try_no = protocol.try_no + 1, by = operator.name, "protocol retried");
    Ok(())
}

/// Approves the criteria, or rejects them with a reason.
pub(super) async fn review(
    pool: &PgPool,
    id: Uuid,
    decision: Decision,
    operator: &Operator,
) -> Result<(), ProtocolError> {
    let reason = operator.reason.as_deref().unwrap_or_default().trim();
    if decision == Decision::Reject && reason.is_empty() {
        return Err(ProtocolError::MissingReason);
    }
    if reason.chars().count() > MAX_REASON_CHARS {
        return Err(ProtocolError::ReasonTooLong);
    }
    let mut tx = pool.begin().await?;
    let protocol = lock(&mut tx, id).await?;
    if protocol.status != Status::PendingReview {
        return Err(ProtocolError::NotReviewable(protocol.status));
    }
    let at = protocol.now.format(&Rfc3339).unwrap_or_default();
    let change = Change {
        add_metadata: Some(json!({ "review": {
            "decision": decision, "reason": (!reason.is_empty()).then_some(reason),
            "by": operator.name, "at": at, "try": protocol.try_no,
        } })),
        ..Change::default()
    };
    match decision {
        Decision::Approve => {
            let transition = protocol.status.transition_to(Status::Complete)?;
            store::apply(&mut tx, id, protocol.try_no, transition, change).await?;
            audit(&mut tx, operator, "approve", &protocol).await?;
        }
        Decision::Reject => {
            let transition = protocol.status.transition_to(Status::Uploaded)?;
            retire_events(&mut tx, id, operator).await?;
            start_next_try(&mut tx, id, &protocol, transition, change).await?;
            audit(&mut tx, operator, "reject", &protocol).await?;
        }
    }
    tx.commit().await?;
    tracing::info!(protocol = %id, ?decision, by = operator.name, "protocol reviewed");
    Ok(())
}

/// Archives a dead letter that has not changed for this long; false if there is nothing to archive.
pub(crate) async fn archive(
    pool: &PgPool,
    id: Uuid,
    after: Duration,
) -> Result<bool, ProtocolError> {
    let mut tx = pool.begin().await?;
    let protocol = store::lock(&mut tx, id, after).await?;
    let Some(protocol) = protocol.filter(|protocol| protocol.archivable) else {
        return Ok(false);
    };
    let change = Change {
        reason: ErrorReason::Keep,
        ..Change::default()
    };
    let transition = protocol.status.transition_to(Status::Archived)?;
    store::apply(&mut tx, id, protocol.try_no, transition, change).await?;
    let system = Operator::new("postrider").with_reason("the dead letter reached its archive age");
    retire_events(&mut tx, id, &system).await?;
    tx.commit().await?;
    gauges::archived(1);
    tracing::info!(protocol = %id, "protocol archived");
    Ok(true)
}

/// Writes the state, the try number and the event that starts the next try. The caller has dealt with the events of the
/// previous one.
pub(crate) async fn start_next_try(
    tx: &mut PgConnection,
    id: Uuid,
    protocol: &LockedProtocol,
    transition: Transition,
    change: Change,
) -> Result<(), sqlx::Error> {
    let change = Change {
        remove_metadata: METADATA_OF_A_TRY,
        criteria: Some(None),
        next_try: true,
        ..change
    };
    store::apply(tx, id, protocol.try_no, transition, change).await?;
    store::enqueue(tx, id, protocol.try_no + 1, Step::Extraction).await
}

/// Cancels or archives every unpublished event of the protocol.
async fn retire_events(
    tx: &mut PgConnection,
    id: Uuid,
    operator: &Operator,
) -> Result<(), ProtocolError> {
    let events = store::unpublished_events(tx, id).await?;
    if events.is_empty() {
        return Ok(());
    }
    let queue = Queue::new(&OUTBOX)?;
    queue.cancel(tx, operator, &events).await?;
    queue.archive(tx, operator, &events).await?;
    Ok(())
}

async fn lock(tx: &mut PgConnection, id: Uuid) -> Result<LockedProtocol, ProtocolError> {
    store::lock(tx, id, Duration::ZERO)
        .await?
        .ok_or(ProtocolError::NotFound)
}

async fn audit(
    tx: &mut PgConnection,
    operator: &Operator,
    action: &'static str,
    protocol: &LockedProtocol,
) -> Result<(), Error> {
    let entry = AuditEntry {
        action,
        table: "protocols.protocol",
        items: &[protocol.seq],
    };
    audit::record(tx, operator, entry).await
}
