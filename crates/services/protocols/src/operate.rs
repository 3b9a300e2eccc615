//! What a person may do to a protocol: let it begin anew, judge it; and what time does: archive it.
//!
//! A new try retires the events of the old one in the same transaction: what still waits is called off, what a worker
//! holds loses its lease, what was given up goes to the archive. Nothing of an old try can touch the new one.

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
    OUTBOX, counters,
    model::{Decision, Move, NotAllowed, Status, Step},
    store::{self, Change, Reason, Standing},
};

/// What a new try forgets.
const OF_THE_OLD_TRY: &[&str] = &["error", "last_failure", "extraction", "grounding"];

/// The longest reason of a reviewer, in characters.
const LONGEST_REASON: usize = 2_000;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No such protocol.
    #[error("no protocol has this id")]
    Unknown,
    /// Only what failed can be tried again.
    #[error(
        "the protocol is {0} and can't be retried: only one that is extraction_failed, grounding_failed or dead_letter can"
    )]
    NotRetryable(Status),
    /// Only what waits for a review can be reviewed.
    #[error("the protocol is {0} and can't be reviewed: only one that is pending_review can")]
    NotReviewable(Status),
    /// A rejection must say why.
    #[error("a rejection needs a reason")]
    NoReason,
    /// A reason that nobody would read.
    #[error("a reason has at most {LONGEST_REASON} characters")]
    LongReason,
    /// The table has no such move.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The engine or the database failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Engine(error.into())
    }
}

/// Lets a protocol that failed begin anew.
pub(crate) async fn retry(pool: &PgPool, id: Uuid, operator: &Operator) -> Result<(), Refused> {
    let mut tx = pool.begin().await?;
    let standing = lock(&mut tx, id).await?;
    if !standing.status.is_retryable() {
        return Err(Refused::NotRetryable(standing.status));
    }
    let step = standing.status.to(Status::Uploaded)?;
    restart(&mut tx, id, &standing, step, Change::default(), operator).await?;
    record(&mut tx, operator, "retry", &standing).await?;
    postrider_crashpoint::point!("protocols.before_retry").map_err(Error::from)?;
    tx.commit().await?;
    counters::retried(1);
    tracing::info!(protocol = %id, try_no = standing.try_no + 1, by = operator.name, "protocol retried");
    Ok(())
}

/// Approves what was found, or sends it back with a reason.
pub(crate) async fn review(
    pool: &PgPool,
    id: Uuid,
    decision: Decision,
    operator: &Operator,
) -> Result<(), Refused> {
    let reason = operator
        .reason
        .as_deref()
        .map(str::trim)
        .unwrap_or_default();
    if decision == Decision::Reject && reason.is_empty() {
        return Err(Refused::NoReason);
    }
    if reason.chars().count() > LONGEST_REASON {
        return Err(Refused::LongReason);
    }
    let mut tx = pool.begin().await?;
    let standing = lock(&mut tx, id).await?;
    if standing.status != Status::PendingReview {
        return Err(Refused::NotReviewable(standing.status));
    }
    let at = standing.now.format(&Rfc3339).unwrap_or_default();
    let review = json!({ "review": {
        "decision": decision, "reason": (!reason.is_empty()).then_some(reason),
        "by": operator.name, "at": at, "try": standing.try_no,
    } });
    let change = Change {
        remember: Some(review),
        ..Change::default()
    };
    match decision {
        Decision::Approve => {
            let step = standing.status.to(Status::Complete)?;
            store::apply(&mut tx, id, standing.try_no, step, change).await?;
            record(&mut tx, operator, "approve", &standing).await?;
        }
        Decision::Reject => {
            let step = standing.status.to(Status::Uploaded)?;
            restart(&mut tx, id, &standing, step, change, operator).await?;
            record(&mut tx, operator, "reject", &standing).await?;
        }
    }
    tx.commit().await?;
    tracing::info!(protocol = %id, ?decision, by = operator.name, "protocol reviewed");
    Ok(())
}

/// Archives a dead letter that nobody touched for so long; says whether it did.
pub(crate) async fn archive(pool: &PgPool, id: Uuid, after: Duration) -> Result<bool, Refused> {
    let mut tx = pool.begin().await?;
    let Some(standing) = store::lock(&mut tx, id, after).await? else {
        return Ok(false);
    };
    if !standing.archivable {
        return Ok(false);
    }
    let change = Change {
        reason: Reason::Keep,
        ..Change::default()
    };
    let step = standing.status.to(Status::Archived)?;
    store::apply(&mut tx, id, standing.try_no, step, change).await?;
    let keeper = Operator::new("postrider").with_reason("nobody touched the dead letter for long");
    retire(&mut tx, id, &keeper).await?;
    tx.commit().await?;
    counters::archived(1);
    tracing::info!(protocol = %id, "protocol archived");
    Ok(true)
}

/// The next try of a protocol, and the end of all events of the old one.
async fn restart(
    tx: &mut PgConnection,
    id: Uuid,
    standing: &Standing,
    step: Move,
    change: Change,
    operator: &Operator,
) -> Result<(), Refused> {
    retire(tx, id, operator).await?;
    next_try(tx, id, standing, step, change).await?;
    Ok(())
}

/// State, try number and the event that begins the next try. Whoever calls it has taken care of the old one's events.
pub(crate) async fn next_try(
    tx: &mut PgConnection,
    id: Uuid,
    standing: &Standing,
    step: Move,
    change: Change,
) -> Result<(), sqlx::Error> {
    let change = Change {
        forget: OF_THE_OLD_TRY,
        criteria: Some(None),
        next_try: true,
        ..change
    };
    store::apply(tx, id, standing.try_no, step, change).await?;
    store::enqueue(tx, id, standing.try_no + 1, Step::Extraction).await
}

/// Takes every event of the protocol that is not published out of the way.
async fn retire(tx: &mut PgConnection, id: Uuid, operator: &Operator) -> Result<(), Refused> {
    let events = store::events(tx, id).await?;
    if events.is_empty() {
        return Ok(());
    }
    let queue = Queue::new(&OUTBOX)?;
    queue.cancel(tx, operator, &events).await?;
    queue.archive(tx, operator, &events).await?;
    Ok(())
}

async fn lock(tx: &mut PgConnection, id: Uuid) -> Result<Standing, Refused> {
    store::lock(tx, id, Duration::ZERO)
        .await?
        .ok_or(Refused::Unknown)
}

async fn record(
    tx: &mut PgConnection,
    operator: &Operator,
    action: &'static str,
    standing: &Standing,
) -> Result<(), Error> {
    let deed = AuditEntry {
        action,
        table: "protocols.protocol",
        items: &[standing.seq],
    };
    audit::record(tx, operator, deed).await
}
