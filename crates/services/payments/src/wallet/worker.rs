//! Delivers callbacks from `wallet.outbox`, which mode `assured` fills.
//!
//! A row is written with the deduction, so it exists exactly if there is a result to report. It is retried until the
//! receiver has it; a rejection that no retry will change (unknown payment, opposite outcome) is a dead letter.

use std::sync::Arc;
use std::time::Duration;

use postrider::{
    BoxError, Error, Handler, Result, RetryPolicy, Verdict, Worker, WorkerOptions,
    breaker::{self, Breaker, Breakers},
    lease::Item,
    retry::MAX_ATTEMPTS,
};
use serde::Deserialize;
use sqlx::PgPool;
use uuid::Uuid;

use super::WALLET_OUTBOX;
use super::callback::{Callback, classify};
use super::deduction::PaymentResult;
use crate::{
    Settings, gauges,
    model::{Outcome, TraceContext},
};

/// Name of the callback's circuit breaker.
pub const DEPENDENCY: &str = "payments.callback";

/// The payload of a claimed row.
#[derive(Debug, Deserialize)]
struct PendingCallback {
    uuid: Uuid,
    status: Outcome,
    reason: Option<String>,
}

/// The worker that delivers callbacks.
pub fn worker(
    pool: PgPool,
    settings: &Settings,
    callback: Arc<dyn Callback>,
    breakers: &Breakers,
    breaker: breaker::Settings,
) -> Result<Worker> {
    // With delays of a minute that is three weeks of failures; an open breaker costs no attempt.
    let (first, max) = (Duration::from_millis(200), Duration::from_secs(60));
    let policy = RetryPolicy::exponential(first, max, MAX_ATTEMPTS)
        .map_err(|error| Error::invalid("payments.callback", error.to_string()))?;
    let breaker = breakers.get_with(DEPENDENCY, breaker);
    let handler =
        Handler::new(move |item| deliver(Arc::clone(&callback), Arc::clone(&breaker), item))
            .policy(policy)
            .concurrency(settings.callback.concurrency)
            .on_dead(|item, failure| {
                tracing::error!(
                    uuid = item
                        .read::<PendingCallback>()
                        .map(|callback| callback.uuid.to_string())
                        .unwrap_or_default(),
                    reason = "CALLBACK_FAILED",
                    error_code = failure.code(),
                    error = failure.message(),
                    "the callback was rejected for good; it is a dead letter"
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

async fn deliver(
    callback: Arc<dyn Callback>,
    breaker: Arc<Breaker>,
    item: Item,
) -> Result<Verdict, BoxError> {
    let pending: PendingCallback = item.read()?;
    let result = PaymentResult {
        uuid: pending.uuid,
        outcome: pending.status,
        reason: pending.reason.map(Into::into),
        trace: TraceContext::from_message(item.trace.as_deref(), item.headers.as_deref()),
    };
    postrider_crashpoint::point!("notify.before_call")?;
    let reported = match breaker.call(callback.report(&result), classify).await {
        Ok(reported) => reported,
        Err(open) => return Ok(Verdict::Snooze(open.retry_after)),
    };
    postrider_crashpoint::point!("notify.after_call")?;
    Ok(match reported {
        Ok(()) => Verdict::Done,
        Err(failure) => {
            gauges::callback_failed(1);
            tracing::warn!(
                uuid = %result.uuid, reason = "CALLBACK_FAILED", error_code = failure.code(), error = failure.message(),
                "callback failed; retrying"
            );
            Verdict::retry(failure)
        }
    })
}
