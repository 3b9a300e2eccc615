//! Call backs that must arrive: a worker over `wallet.outbox`, which the mode `assured` fills.
//!
//! A row was written with the deduction, so it is there exactly if there is something to tell. It is told until the
//! orchestrator has it; a refusal that no repetition will change (no such payment, ended the other way) is a dead letter.

use std::sync::Arc;
use std::time::Duration;

use postrider::{
    Error, Result,
    breaker::{self, Breaker, Breakers},
    lease::Item,
    retry::{MAX_ATTEMPTS, Policy},
    runtime::{BoxError, Handler, Verdict, Worker, WorkerOptions},
};
use serde::Deserialize;
use sqlx::PgPool;
use uuid::Uuid;

use super::callback::{Callback, Ending, shows};
use crate::{
    Settings, WALLET_OUTBOX, counters,
    model::{Outcome, TraceContext},
};

/// The breaker's name.
pub const DEPENDENCY: &str = "payments.callback";

#[derive(Debug, Deserialize)]
struct Owed {
    uuid: Uuid,
    status: Outcome,
    reason: Option<String>,
}

/// The worker of the call backs that are owed.
pub fn worker(
    pool: PgPool,
    settings: &Settings,
    callback: Arc<dyn Callback>,
    breakers: &Breakers,
    breaker: breaker::Settings,
) -> Result<Worker> {
    // With waits of a minute, three weeks of failures; while the breaker is open, none is spent.
    let (first, longest) = (Duration::from_millis(200), Duration::from_secs(60));
    let policy = Policy::exponential(first, longest, MAX_ATTEMPTS)
        .map_err(|error| Error::invalid("payments.callback", error.to_string()))?;
    let breaker = breakers.get_with(DEPENDENCY, breaker);
    let handler = Handler::new(move |item| tell(Arc::clone(&callback), Arc::clone(&breaker), item))
        .policy(policy)
        .concurrency(settings.callback.concurrency)
        .on_dead(|item, failure| {
            tracing::error!(
                uuid = item
                    .read::<Owed>()
                    .map(|owed| owed.uuid.to_string())
                    .unwrap_or_default(),
                reason = "CALLBACK_FAILED",
                error_code = failure.code(),
                error = failure.message(),
                "the orchestrator refuses to be told how the payment ended"
            );
            None
        });
    let options = WorkerOptions {
        lease: settings.lease.seconds,
        rescue_every: settings.lease.seconds.min(Duration::from_secs(1)),
        ..WorkerOptions::default()
    };
    Ok(Worker::new(pool, &WALLET_OUTBOX)?
        .options(options)
        .handle_others(handler))
}

async fn tell(
    callback: Arc<dyn Callback>,
    breaker: Arc<Breaker>,
    item: Item,
) -> Result<Verdict, BoxError> {
    let owed: Owed = item.read()?;
    let ending = Ending {
        uuid: owed.uuid,
        outcome: owed.status,
        reason: owed.reason,
        trace: TraceContext::carried(item.trace.as_deref(), item.headers.as_deref()),
    };
    postrider_crashpoint::point!("notify.before_call")?;
    let told = match breaker.call(callback.tell(&ending), shows).await {
        Ok(told) => told,
        Err(open) => return Ok(Verdict::Snooze(open.retry_after)),
    };
    postrider_crashpoint::point!("notify.after_call")?;
    Ok(match told {
        Ok(()) => Verdict::Done,
        Err(failure) => {
            counters::callback_failed(1);
            tracing::warn!(
                uuid = %ending.uuid, reason = "CALLBACK_FAILED", error_code = failure.code(), error = failure.message(),
                "the orchestrator could not be told how the payment ended; it is told again"
            );
            Verdict::retry(failure)
        }
    })
}
