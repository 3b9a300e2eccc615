//! Sends orders to the broker: check, mark as sent, send, settle.
//!
//! Before an order is sent, its row is durably marked as possibly sent (`sent_at`). A marked row may have been sent by a
//! worker that never saw the response (time-out, crash, lost commit), so the broker is queried for it before it is sent
//! again. The mark is cleared only when the broker certainly doesn't have the order.

use std::{sync::Arc, time::Duration};

use postrider::{
    BoxError, Effect, Error, Handled, Handler, Result, RetryPolicy, Verdict, Worker, WorkerOptions,
    breaker::{self, Breaker, Breakers},
    failure::{Category, Failure},
    lease::{Item, Outcome},
    ledger::{self, Ledger, LedgerError},
    limits::Limiter,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sqlx::PgPool;

use crate::{
    OUTBOX_ORDERS, Settings,
    broker::{Broker, BrokerError, ErrorKind},
    gauges,
    model::key,
    store::{self, SendCheck},
};

/// Name of the broker's circuit breaker.
pub const DEPENDENCY: &str = "orders.broker";

/// Snooze when the order was finished concurrently or the database is unavailable.
const SNOOZE: Duration = Duration::from_secs(1);

/// The payload of a claimed order.
#[derive(Debug, Deserialize)]
struct ClaimedOrder {
    key: String,
    order: Map<String, Value>,
    sent: bool,
    expired: bool,
    ledger: Option<String>,
}

/// Result of one attempt. `not_sent`: the broker certainly doesn't have the order.
enum Attempt {
    /// The broker accepted the order.
    Accepted(Value),
    /// Retry, which spends an attempt.
    Failed { error: BrokerError, not_sent: bool },
    /// The order must not be sent any more.
    Dead(Failure),
    /// Try again later without spending an attempt.
    Snooze(Duration),
    /// The same, and the error is shown on the order.
    Blocked { error: BrokerError, not_sent: bool },
}

/// The worker that sends orders.
pub fn worker(
    pool: PgPool,
    settings: &Settings,
    broker: Arc<dyn Broker>,
    breakers: &Breakers,
    breaker: breaker::Settings,
) -> Result<Worker> {
    let policy = settings
        .policy()
        .map_err(|error| Error::invalid("orders.backoff", error.to_string()))?;
    let limit = settings
        .broker
        .limit()
        .map_err(|error| Error::invalid("orders.broker.rate", error.to_string()))?;
    let sender = Arc::new(Sender {
        pool: pool.clone(),
        broker,
        breaker: breakers.get_with(DEPENDENCY, breaker),
        policy: policy.clone(),
        limiter: Limiter::new(limit),
    });
    gauges::register();
    let adapter = sender.broker.name();
    let handler = Handler::new(move |item| Arc::clone(&sender).handle(item))
        .policy(policy)
        .concurrency(settings.concurrency)
        .on_dead(|item, failure| Some(record_failure(item, failure)))
        .on_settled(move |item, outcome| report(adapter, item, outcome));
    let options = WorkerOptions {
        lease: settings.lease.seconds,
        // Prefetched orders wait for their lease to expire if the worker dies, so prefetch only enough to stay busy.
        batch: u32::try_from(settings.concurrency)
            .unwrap_or(u32::MAX)
            .clamp(1, 500),
        prefetch: settings.concurrency,
        rescue_every: settings.lease.seconds.min(Duration::from_secs(1)),
        ..WorkerOptions::default()
    };
    Ok(Worker::new(pool, &OUTBOX_ORDERS)?
        .options(options)
        .handle_others(handler))
}

struct Sender {
    pool: PgPool,
    broker: Arc<dyn Broker>,
    breaker: Arc<Breaker>,
    policy: RetryPolicy,
    limiter: Limiter,
}

impl Sender {
    async fn handle(self: Arc<Self>, item: Item) -> Result<Handled, BoxError> {
        let order: ClaimedOrder = item.read()?;
        let attempt = self.attempt(item.id, &order).await?;
        Ok(self.conclude(&item, &order, attempt))
    }

    async fn attempt(&self, id: i64, order: &ClaimedOrder) -> Result<Attempt, BoxError> {
        if order.ledger.as_deref() != Some("accepted") {
            // The row was redriven without its ledger entry, so nobody confirmed that it may be stale.
            return Ok(Attempt::Dead(Failure::with_category(
                "REDRIVE_NOT_CONFIRMED",
                Category::Data,
                "the ledger says that this order is finished; redrive it with `postrider orders redrive --allow-stale`",
            )));
        }
        if order.sent
            && let Some(attempt) = self.find_at_broker(order).await
        {
            return Ok(attempt);
        }
        if order.expired {
            return Ok(Attempt::Dead(expired()));
        }
        // The rate limit comes first: an order that waits for its turn can still expire or be cancelled.
        let _entry = self.limiter.acquire().await;
        // The breaker comes before the mark: an order that an open breaker holds back was not sent.
        let permit = match self.breaker.permit() {
            Ok(permit) => permit,
            Err(open) => return Ok(Attempt::Snooze(open.retry_after)),
        };
        match store::mark_sent(&self.pool, id).await {
            Ok(SendCheck::Send) => {}
            Ok(SendCheck::Expired) => return Ok(Attempt::Dead(expired())),
            Ok(SendCheck::Finished) => return Ok(Attempt::Snooze(SNOOZE)),
            Err(error) if postrider::internal::database_is_transient(&error) => {
                tracing::warn!(%error, key = order.key, "database unavailable; order not sent, retrying");
                return Ok(Attempt::Snooze(SNOOZE));
            }
            Err(error) => return Err(error.into()),
        }
        postrider_crashpoint::point!("orders.before_send")?;
        let sent = self.broker.send(broker_request(order)).await;
        permit.report(classify(&sent));
        postrider_crashpoint::point!("orders.after_send")?;
        Ok(match sent {
            Ok(response) => Attempt::Accepted(response),
            Err(error) if may_be_duplicate(order, &error) => {
                self.resolve_conflict(order, error).await
            }
            Err(error) => {
                // An earlier attempt with an unknown outcome may still arrive, whatever this one tells us.
                let not_sent = error.kind != ErrorKind::Uncertain && !order.sent;
                not_accepted(error, not_sent)
            }
        })
    }

    /// Queries the broker for an order that may have been sent before. `None`: the broker doesn't know it.
    async fn find_at_broker(&self, order: &ClaimedOrder) -> Option<Attempt> {
        let _entry = self.limiter.acquire().await;
        let found = self
            .breaker
            .call(self.broker.find(&order.key), classify)
            .await;
        match found {
            Err(open) => Some(Attempt::Snooze(open.retry_after)),
            Ok(Err(error)) => Some(not_accepted(error, false)),
            Ok(Ok(Some(response))) => Some(Attempt::Accepted(response)),
            Ok(Ok(None)) => None,
        }
    }

    /// A broker that already has the order may answer a repetition with a conflict, so ask what it has.
    async fn resolve_conflict(&self, order: &ClaimedOrder, error: BrokerError) -> Attempt {
        match self.broker.find(&order.key).await {
            Ok(Some(response)) => Attempt::Accepted(response),
            Ok(None) => not_accepted(error, !order.sent),
            Err(unknown) => not_accepted(unknown, false),
        }
    }

    /// Turns an attempt into a verdict and the writes that commit with it.
    fn conclude(&self, item: &Item, order: &ClaimedOrder, attempt: Attempt) -> Handled {
        let id = item.id;
        match attempt {
            Attempt::Snooze(wait) => Verdict::Snooze(wait).into(),
            Attempt::Dead(failure) => Verdict::Dead(failure).into(),
            Attempt::Accepted(response) => {
                let name = order.key.clone();
                Handled::from(Verdict::Done).with(move |tx| {
                    Box::pin(async move {
                        let key = key(&name)?;
                        Ledger::default()
                            .finish(tx, &key, ledger::Outcome::Succeeded, Some(response))
                            .await
                            .map_err(boxed)
                    })
                })
            }
            Attempt::Blocked { error, not_sent } => {
                let wait = error
                    .retry_after
                    .or_else(|| self.policy.delay(1, 0.5))
                    .unwrap_or(SNOOZE);
                tracing::error!(
                    key = order.key, attempts = item.attempts, error_code = error.failure.code(),
                    error = error.failure.message(), adapter = self.broker.name(), retry_in = ?wait,
                    "the broker refuses our credentials; order not sent, retrying"
                );
                Handled::from(Verdict::Snooze(wait)).with(move |tx| {
                    Box::pin(async move {
                        store::record_error(tx, id, &error.failure, not_sent)
                            .await
                            .map_err(Into::into)
                    })
                })
            }
            Attempt::Failed { error, not_sent } => {
                let after = error.retry_after;
                let failure = if not_sent || error.kind != ErrorKind::Uncertain {
                    error.failure
                } else {
                    uncertain(&error.failure)
                };
                let handled = Handled::from(Verdict::Retry { failure, after });
                if !not_sent {
                    return handled;
                }
                handled.with(move |tx| {
                    Box::pin(async move { store::clear_sent(tx, id).await.map_err(Into::into) })
                })
            }
        }
    }
}

/// Counts and logs a committed outcome.
fn report(adapter: &'static str, item: &Item, outcome: &Outcome) {
    let name = item.read::<ClaimedOrder>().map(|order| order.key);
    let key = name.as_deref().unwrap_or("unreadable");
    let attempts = item.attempts + 1;
    match outcome {
        Outcome::Done => {
            gauges::sent(1);
            tracing::info!(key, status = "succeeded", attempts, adapter, "order sent");
        }
        Outcome::Retry { after, failure } => {
            gauges::failed(1);
            let (error_code, error) = (failure.code(), failure.message());
            tracing::warn!(key, status = "failed", attempts, error_code, error, adapter, retry_in = ?after, "order not sent; retrying");
        }
        Outcome::Dead { failure } | Outcome::Abandoned { failure } => {
            gauges::aborted(1);
            let (error_code, error) = (failure.code(), failure.message());
            tracing::error!(
                key,
                status = "aborted",
                attempts,
                error_code,
                error,
                adapter,
                "order aborted"
            );
        }
        Outcome::Snooze { .. } | Outcome::Release => {}
    }
}

/// Records the failure in the ledger, in the transaction that marks the order dead.
fn record_failure(item: &Item, failure: &Failure) -> Effect {
    let name = item.read::<ClaimedOrder>().map(|order| order.key);
    let result = json!({ "reason_code": failure.code(), "message": failure.message() });
    Box::new(move |tx| {
        Box::pin(async move {
            let key = key(&name?)?;
            let outcome = ledger::Outcome::Failed;
            match Ledger::default()
                .finish(tx, &key, outcome, Some(result))
                .await
            {
                // Already recorded: the row was redriven without its ledger entry.
                Err(LedgerError::WrongState {
                    state: ledger::State::Failed,
                    ..
                }) => Ok(()),
                other => other.map_err(boxed),
            }
        })
    })
}

/// Unwraps database errors: the engine recognises an outage by the error's own type.
fn boxed(error: LedgerError) -> BoxError {
    match error {
        LedgerError::Other(Error::Database(error)) => Box::new(error),
        other => Box::new(other),
    }
}

/// The order's fields in one flat object, with the id that the broker knows it by.
fn broker_request(order: &ClaimedOrder) -> Value {
    let mut request = order.order.clone();
    request.remove("idempotency_key");
    request.insert(
        "client_order_id".to_owned(),
        Value::String(order.key.clone()),
    );
    Value::Object(request)
}

fn classify<T>(result: &Result<T, BrokerError>) -> breaker::Outcome {
    match result {
        Ok(_) => breaker::Outcome::Answered,
        Err(error) => error.health,
    }
}

/// `not_sent`: the broker doesn't have the order, and no earlier attempt can still deliver it.
fn not_accepted(error: BrokerError, not_sent: bool) -> Attempt {
    match error.kind {
        ErrorKind::Unauthorized => Attempt::Blocked { error, not_sent },
        ErrorKind::Rejected | ErrorKind::NotAccepted | ErrorKind::Uncertain => {
            Attempt::Failed { error, not_sent }
        }
    }
}

fn may_be_duplicate(order: &ClaimedOrder, error: &BrokerError) -> bool {
    let code = error.failure.code();
    match error.kind {
        ErrorKind::Rejected => order.sent || code == "409" || code.contains("DUPLICATE"),
        ErrorKind::NotAccepted => code == "409",
        ErrorKind::Uncertain | ErrorKind::Unauthorized => false,
    }
}

fn expired() -> Failure {
    Failure::with_category(
        "EXPIRED",
        Category::Data,
        "the order's expires_at has passed; it was not sent",
    )
}

fn uncertain(failure: &Failure) -> Failure {
    let message = format!("{}; the broker may have the order", failure.message());
    Failure::with_category(failure.code(), failure.category(), message)
}
