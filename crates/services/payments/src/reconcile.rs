//! Reconciliation: settles what is stuck, from the wallet's facts.
//!
//! The promise: no request is declared failed that the wallet has deducted or will ever deduct. First a tombstone for each
//! uuid goes into the wallet's inbox where nothing is yet, durably; then what is there is read; then the request is
//! updated if it is still pending. A listener that is just taking the payment in is waited for, a message that comes
//! later finds the tombstone. Hence it may run beside live traffic, twice at once, and be killed at any moment: the next
//! run reads the same facts.

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
    counters,
    model::{Outcome, Status, Stuck},
    store::{self, StuckRequest},
    wallet::{Verdict, Wallet},
};

/// Requests per round: short transactions on either side.
const PIECE: i64 = 500;

/// One call looks at no more than this, and says that there is more.
const MOST: usize = 10_000;

/// Nor does it take much longer than this.
const LONGEST: Duration = Duration::from_secs(10);

/// What one reconciliation did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Report {
    /// How many pending requests were old enough to be looked at.
    pub looked_at: usize,
    /// How many of them it settled; the others were settled by somebody else meanwhile.
    pub settled: usize,
    /// Is there more to look at? Then ask again.
    pub more: bool,
    /// What it settled, and why each had been stuck.
    pub requests: Vec<Reconciled>,
}

/// A request that was settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Reconciled {
    /// Which.
    pub uuid: Uuid,
    /// How it ended.
    pub status: Status,
    /// Why it had been stuck.
    pub why: Stuck,
}

/// Settles every request that is pending for at least `after`.
pub async fn once(
    pool: &PgPool,
    wallet: &Wallet,
    after: Duration,
    operator: &Operator,
) -> Result<Report, Error> {
    let begun = Instant::now();
    let mut report = Report::default();
    let mut past = (OffsetDateTime::UNIX_EPOCH, 0);
    loop {
        let stuck = store::stuck(pool, after, past, PIECE).await?;
        let Some(last) = stuck.last() else { break };
        past = (last.created_at, last.seq);
        let settled = piece(pool, wallet, operator, &stuck).await?;
        report.looked_at += stuck.len();
        report.settled += settled.len();
        report.requests.extend(settled);
        if report.looked_at >= MOST || begun.elapsed() >= LONGEST {
            report.more = true;
            break;
        }
    }
    Ok(report)
}

async fn piece(
    pool: &PgPool,
    wallet: &Wallet,
    operator: &Operator,
    stuck: &[StuckRequest],
) -> Result<Vec<Reconciled>, Error> {
    let uuids: Vec<Uuid> = stuck.iter().map(|request| request.uuid).collect();
    let verdicts = wallet.refuse(&uuids).await?;
    postrider_crashpoint::point!("reconcile.after_tombstones")?;
    let judged: Vec<(Uuid, Outcome, Stuck, Option<String>)> = stuck
        .iter()
        .filter_map(|request| {
            let (outcome, why, reason) = judge(request, verdicts.get(&request.uuid)?);
            Some((request.uuid, outcome, why, reason))
        })
        .collect();
    let written: Vec<(Uuid, Outcome, Option<String>)> = judged
        .iter()
        .map(|(uuid, outcome, _, reason)| (*uuid, *outcome, reason.clone()))
        .collect();
    let settled = store::reconcile(pool, operator, &written).await?;
    Ok(judged
        .into_iter()
        .filter(|(uuid, ..)| settled.contains(uuid))
        .map(|(uuid, outcome, why, reason)| {
            counters::reconciled(why, 1);
            tracing::info!(
                %uuid, status = outcome.as_str(), why = why.as_str(), reason, by = operator.name, "payment reconciled"
            );
            Reconciled {
                uuid,
                status: outcome.into(),
                why,
            }
        })
        .collect())
}

/// How a request ends, why it was stuck, and the reason that it keeps.
fn judge(request: &StuckRequest, verdict: &Verdict) -> (Outcome, Stuck, Option<String>) {
    match verdict {
        Verdict::Handled(outcome, reason) => (*outcome, Stuck::CallbackFailed, reason.clone()),
        Verdict::Refused { given_up } => {
            let why = match (given_up, request.exhausted) {
                (true, _) => Stuck::ListenerFailed,
                (false, true) => Stuck::OutboxExhausted,
                (false, false) => Stuck::InFlight,
            };
            (Outcome::Failed, why, Some(why.as_str().to_owned()))
        }
    }
}

/// Reconciles at intervals until the stop; one process at a time does it.
pub async fn schedule(
    pool: PgPool,
    wallet: Wallet,
    every: Duration,
    after: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| {
        let (pool, wallet) = (pool.clone(), wallet.clone());
        async move {
            let operator = Operator::new("scheduler");
            while once(&pool, &wallet, after, &operator).await?.more {}
            Ok::<(), Error>(())
        }
    };
    let periodic = Periodic::new("payments.reconcile", every);
    run_periodic(pool.clone(), periodic, stop, task).await
}
