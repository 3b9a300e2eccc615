//! Consumes payment requests: deducts many in one transaction, then reports the results.
//!
//! Deduction and inbox entry commit together, and so does the acknowledgement where the transport lives in the same
//! database. The delivery mode decides what happens on an unexpected failure. `chance`: everything is rolled back, the
//! failure is recorded in `wallet.failure`, and the message is acknowledged; the callback after a commit is made once.
//! `assured`: the message is retried a bounded number of times and then becomes a dead letter, which is recorded in
//! `wallet.failure` first; the callback is written with the deduction and delivered by [`super::worker`].
//!
//! If the wallet's database is unavailable or the process is killed, the message has not been handled: it is redelivered in
//! both modes, and the inbox makes sure that it is deducted once.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    BoxError, RetryPolicy, Verdict,
    failure::Failure,
    internal::decide,
    lease::Outcome as SettleOutcome,
    transport::{BatchHandler, BatchOutcome, Delivery, Subscriber, Subscription, Transport},
    wake::Waker,
};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::callback::Callback;
use super::deduction::{Charge, PaymentResult};
use super::{GROUP, WALLET_OUTBOX, Wallet, store, timed_out};
use crate::{Settings, gauges, model::Outcome, requests::TOPIC, settings::DeliveryMode};

/// Deadline of a batch's database calls; a silent connection counts as an outage.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause before subscribing again after the transport refused.
const RESUBSCRIBE_DELAY: Duration = Duration::from_secs(5);

/// Maximum number of callbacks that wait for their turn before consuming pauses.
const MAX_PENDING_CALLBACKS: usize = 2_000;

/// Consumes payment requests.
pub struct PaymentConsumer {
    transport: Arc<dyn Transport>,
    subscription: Subscription,
    handler: Arc<Deductor>,
    batch: usize,
}

impl PaymentConsumer {
    /// A consumer with these settings. Must be called inside a tokio runtime.
    pub fn new(
        transport: Arc<dyn Transport>,
        wallet: Wallet,
        settings: &Settings,
        callback: Arc<dyn Callback>,
    ) -> postrider::Result<Self> {
        let policy = settings.consumer_policy().map_err(|error| {
            postrider::Error::invalid("payments.wallet.max_attempts", error.to_string())
        })?;
        let subscription = Subscription::new(GROUP, [TOPIC])?
            .lease(settings.lease.seconds)
            .prefetch(2 * settings.wallet.batch)
            .policy(policy.clone());
        let callbacks = Callbacks {
            wallet: wallet.clone(),
            callback,
            permits: Arc::new(Semaphore::new(settings.callback.concurrency)),
            running: Mutex::default(),
        };
        Ok(Self {
            transport,
            subscription,
            batch: settings.wallet.batch,
            handler: Arc::new(Deductor {
                waker: Waker::new(wallet.pool.clone()),
                wallet,
                mode: settings.delivery,
                policy,
                callbacks: Arc::new(callbacks),
            }),
        })
    }

    /// Consumes until `stop` is cancelled, then finishes the callbacks under way. Waits while the transport is
    /// unavailable.
    pub async fn run(self, stop: CancellationToken) -> postrider::Result<()> {
        while !stop.is_cancelled() {
            let handler: Arc<dyn BatchHandler> = Arc::clone(&self.handler) as _;
            let subscriber = Subscriber::batch(
                Arc::clone(&self.transport),
                self.subscription.clone(),
                self.handler.wallet.pool.clone(),
                self.batch,
                handler,
            );
            if let Err(error) = subscriber.run(stop.clone()).await {
                tracing::error!(%error, group = GROUP, "the transport refused the subscription; retrying");
                stop.run_until_cancelled(tokio::time::sleep(RESUBSCRIBE_DELAY))
                    .await;
            }
        }
        self.handler.callbacks.finish().await;
        Ok(())
    }
}

impl std::fmt::Debug for PaymentConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PaymentConsumer")
            .field("transport", &self.transport)
            .field("mode", &self.handler.mode)
            .finish_non_exhaustive()
    }
}

struct Deductor {
    wallet: Wallet,
    waker: Waker,
    mode: DeliveryMode,
    policy: RetryPolicy,
    callbacks: Arc<Callbacks>,
}

impl Deductor {
    async fn deduct(&self, batch: &[Delivery]) -> Result<BatchOutcome, BoxError> {
        let charges: Vec<Charge> = batch
            .iter()
            .map(|delivery| Charge::read(&delivery.message))
            .collect::<Result<_, _>>()?;
        let with_callback = self.mode == DeliveryMode::Assured;
        let (tx, results) =
            bounded(store::deduct(&self.wallet.pool, &charges, with_callback)).await?;
        postrider_crashpoint::point!("wallet.before_commit").map_err(postrider::Error::from)?;
        let duplicates = charges.len() - results.len();
        let (mode, waker) = (self.mode, self.waker.clone());
        let callbacks = Arc::clone(&self.callbacks);
        let report = async move {
            gauges::duplicates(duplicates as u64);
            for outcome in [Outcome::Succeed, Outcome::Failed] {
                let of_outcome = results.iter().filter(|result| result.outcome == outcome);
                gauges::handled(outcome, of_outcome.count() as u64);
            }
            match mode {
                _ if results.is_empty() => {}
                DeliveryMode::Assured => waker.wake(&WALLET_OUTBOX),
                DeliveryMode::Chance => callbacks.start(results).await,
            }
        };
        Ok(BatchOutcome::from(vec![Verdict::Done; batch.len()])
            .in_transaction(tx)
            .after_commit(report))
    }

    /// Records the failure and acknowledges (`chance`), or retries and records the last attempt's failure (`assured`).
    async fn fail(&self, delivery: &Delivery, failure: Failure) -> Result<BatchOutcome, BoxError> {
        let uuid = Charge::read(&delivery.message)
            .ok()
            .map(|charge| charge.uuid);
        let message = delivery.message.id.uuid();
        let shown = uuid.map_or_else(|| "unreadable".to_owned(), |uuid| uuid.to_string());
        let verdict = match self.mode {
            DeliveryMode::Chance => Verdict::Done,
            DeliveryMode::Assured => Verdict::retry(failure.clone()),
        };
        if self.mode == DeliveryMode::Assured && !self.is_last_attempt(&verdict, delivery.attempts)
        {
            tracing::warn!(
                uuid = shown, %message, error_code = failure.code(), error = failure.message(),
                "the wallet failed to handle a message; retrying"
            );
            return Ok(vec![verdict].into());
        }
        // Recorded before the message is settled: if it is redelivered and deducted after all, that outweighs the failure.
        let record = async {
            let mut tx = self.wallet.pool.begin().await?;
            store::record_failure(&mut tx, uuid, message, &failure).await?;
            Ok(tx)
        };
        let tx = bounded(record).await?;
        let mode = self.mode;
        let report = async move {
            if mode == DeliveryMode::Chance {
                gauges::consumer_failed(1);
            }
            tracing::error!(
                uuid = shown, %message, reason = "LISTENER_FAILED", error_code = failure.code(),
                error = failure.message(),
                "the wallet failed to handle a message for good; the payment stays PENDING until it is redriven or reconciled"
            );
        };
        Ok(BatchOutcome::from(vec![verdict])
            .in_transaction(tx)
            .after_commit(report))
    }

    fn is_last_attempt(&self, verdict: &Verdict, attempts: u32) -> bool {
        let attempts = i32::try_from(attempts).unwrap_or(i32::MAX);
        matches!(
            decide(&self.policy, verdict.clone(), attempts, 0.5),
            SettleOutcome::Dead { .. }
        )
    }
}

impl BatchHandler for Deductor {
    fn handle<'a>(
        &'a self,
        batch: &'a [Delivery],
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(self.deduct(batch))
    }

    fn on_failure<'a>(
        &'a self,
        delivery: &'a Delivery,
        failure: Failure,
    ) -> BoxFuture<'a, Result<BatchOutcome, BoxError>> {
        Box::pin(self.fail(delivery, failure))
    }
}

/// The callbacks of mode `chance`: one attempt each, after the commit. They are aborted with the consumer.
struct Callbacks {
    wallet: Wallet,
    callback: Arc<dyn Callback>,
    permits: Arc<Semaphore>,
    running: Mutex<JoinSet<()>>,
}

impl Callbacks {
    /// Starts the callbacks; waits while too many are pending.
    async fn start(&self, results: Vec<PaymentResult>) {
        let mut running = self.running.lock().await;
        for result in results {
            while running.try_join_next().is_some() {}
            if running.len() >= MAX_PENDING_CALLBACKS {
                running.join_next().await;
            }
            let (wallet, callback) = (self.wallet.clone(), Arc::clone(&self.callback));
            let permits = Arc::clone(&self.permits);
            running.spawn(async move {
                let _permit = permits.acquire().await;
                call_back(&wallet, &*callback, result).await;
            });
        }
    }

    async fn finish(&self) {
        let mut running = self.running.lock().await;
        while running.join_next().await.is_some() {}
    }
}

async fn call_back(wallet: &Wallet, callback: &dyn Callback, result: PaymentResult) {
    let uuid = result.uuid;
    if let Err(error) = postrider_crashpoint::point!("wallet.before_callback") {
        tracing::warn!(%error, %uuid, "no callback");
        return;
    }
    let Err(failure) = callback.report(&result).await else {
        return;
    };
    gauges::callback_failed(1);
    tracing::warn!(
        %uuid, reason = "CALLBACK_FAILED", error_code = failure.code(), error = failure.message(),
        "callback failed; it is not retried, the payment stays PENDING until it is reconciled"
    );
    let recorded = store::record_callback_error(&wallet.pool, uuid, failure.message());
    if let Err(error) = bounded(recorded).await {
        tracing::warn!(%error, %uuid, "could not record the failed callback; the payment shows it once it is overdue");
    }
}

async fn bounded<T>(call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(result) => result,
        Err(_) => Err(timed_out()),
    }
}
