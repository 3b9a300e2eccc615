//! Reconciliation: settles stuck payments from the wallet's records.
//!
//! The promise: no request fails that the wallet has deducted or will ever deduct. First a tombstone for each uuid is
//! committed to the wallet's inbox where no entry exists yet; then the inbox is read; then the request is settled if it is
//! still pending. A consumer that is just handling the payment is waited for, and a message that arrives later finds the
//! tombstone. So a reconciliation may run next to live traffic, twice at once, and be killed at any moment: the next run
//! reads the same records.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use postrider::{
    Error,
    leader::{Periodic, run_periodic},
    lease::Operator,
};
use serde::Serialize;
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::{
    gauges,
    model::{Outcome, PendingReason, Status},
    requests::store::{self, PendingRequest},
    wallet::{InboxState, Wallet},
};

/// Requests per round; keeps transactions short on both sides.
const CHUNK_SIZE: i64 = 500;

/// Maximum number of requests per call; the report says if there are more.
const MAX_REQUESTS: usize = 10_000;

/// Time after which a call starts no further round.
const MAX_DURATION: Duration = Duration::from_secs(10);

/// The result of one reconciliation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Report {
    /// Number of pending requests that were old enough.
    pub looked_at: usize,
    /// Number of requests settled; the others were settled concurrently.
    pub settled: usize,
    /// True if there are more requests; call again.
    pub more: bool,
    /// The settled requests, and why each was stuck.
    pub requests: Vec<Reconciled>,
}

/// A request that was settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Reconciled {
    /// The payment's uuid.
    pub uuid: Uuid,
    /// The payment's status.
    pub status: Status,
    /// Why the payment was stuck.
    pub why: PendingReason,
}

/// Settles every request that has been pending for at least `after`.
pub async fn reconcile(
    pool: &PgPool,
    wallet: &Wallet,
    after: Duration,
    operator: &Operator,
) -> Result<Report, Error> {
    let started = Instant::now();
    let mut report = Report::default();
    let mut position = (OffsetDateTime::UNIX_EPOCH, 0);
    loop {
        let pending = store::stuck(pool, after, position, CHUNK_SIZE).await?;
        let Some(last) = pending.last() else { break };
        position = (last.created_at, last.seq);
        let settled = reconcile_chunk(pool, wallet, operator, &pending).await?;
        report.looked_at += pending.len();
        report.settled += settled.len();
        report.requests.extend(settled);
        if report.looked_at >= MAX_REQUESTS || started.elapsed() >= MAX_DURATION {
            report.more = true;
            break;
        }
    }
    Ok(report)
}

async fn reconcile_chunk(
    pool: &PgPool,
    wallet: &Wallet,
    operator: &Operator,
    pending: &[PendingRequest],
) -> Result<Vec<Reconciled>, Error> {
    let uuids: Vec<Uuid> = pending.iter().map(|request| request.uuid).collect();
    let inbox = wallet.place_tombstones(&uuids).await?;
    postrider_crashpoint::point!("reconcile.after_tombstones")?;
    let mut reasons = HashMap::with_capacity(pending.len());
    let mut results = Vec::with_capacity(pending.len());
    for request in pending {
        let Some(state) = inbox.get(&request.uuid) else {
            continue;
        };
        let (outcome, why, reason) = decide(request, state);
        reasons.insert(request.uuid, why);
        results.push((request.uuid, outcome, reason));
    }
    let settled = store::reconcile(pool, operator, &results).await?;
    Ok(results
        .into_iter()
        .filter(|(uuid, ..)| settled.contains(uuid))
        .filter_map(|(uuid, outcome, reason)| {
            let why = *reasons.get(&uuid)?;
            gauges::reconciled(why, 1);
            tracing::info!(
                %uuid, status = outcome.as_str(), why = why.as_str(), reason, by = operator.name, "payment reconciled"
            );
            let status = outcome.into();
            Some(Reconciled { uuid, status, why })
        })
        .collect())
}

/// A request's outcome, why it was stuck, and the reason to record.
fn decide(
    request: &PendingRequest,
    inbox: &InboxState,
) -> (Outcome, PendingReason, Option<String>) {
    match inbox {
        InboxState::Handled(outcome, reason) => {
            (*outcome, PendingReason::CallbackFailed, reason.clone())
        }
        InboxState::Tombstone { consumer_failed } => {
            let why = match (consumer_failed, request.exhausted) {
                (true, _) => PendingReason::ListenerFailed,
                (false, true) => PendingReason::OutboxExhausted,
                (false, false) => PendingReason::InFlight,
            };
            (Outcome::Failed, why, Some(why.as_str().to_owned()))
        }
    }
}

/// Reconciles at intervals until `stop` is cancelled; one process at a time does it.
pub async fn run(
    pool: PgPool,
    wallet: Wallet,
    interval: Duration,
    after: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| {
        let (pool, wallet) = (pool.clone(), wallet.clone());
        async move {
            let operator = Operator::new("scheduler");
            while reconcile(&pool, &wallet, after, &operator).await?.more {}
            Ok::<(), Error>(())
        }
    };
    let periodic = Periodic::new("payments.reconcile", interval);
    run_periodic(pool.clone(), periodic, stop, task).await
}
