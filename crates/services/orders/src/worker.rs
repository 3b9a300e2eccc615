//! Sends orders: look, mark, send, and one verdict for whatever comes of it.
//!
//! Before an order leaves the house its row is marked as possibly sent, durably. A row that carries the mark was
//! perhaps sent by somebody who never heard the answer (a time-out, a killed worker, a lost commit), so the broker is
//! asked for it before it is sent again. The mark goes only when it is certain that the broker has not got the order.

use std::sync::Arc;

use postrider::{
    Error, Result,
    breaker::{self, Breaker, Breakers},
    failure::{Category, Failure},
    lease::{Item, Outcome},
    ledger::{self, Ledger, LedgerError},
    limits::Destination,
    retry::Policy,
    runtime::{BoxError, Effect, Handled, Handler, Verdict, Worker, WorkerOptions},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sqlx::PgPool;

use crate::{
    OUTBOX_ORDERS, Settings,
    broker::{Broker, Kind, Refusal},
    counters,
    model::key,
    store::{self, Clearance},
};

/// The breaker's name.
pub const DEPENDENCY: &str = "orders.broker";

/// Somebody finished the order while we were about to send it; whoever did holds the row now.
const OVERTAKEN: std::time::Duration = std::time::Duration::from_secs(1);

/// What a claim gives us of an order.
#[derive(Debug, Deserialize)]
struct Work {
    key: String,
    order: Map<String, Value>,
    sent: bool,
    expired: bool,
    ledger: Option<String>,
}

/// What came of an attempt.
enum Attempt {
    /// The broker has it.
    Accepted(Value),
    /// It failed so; the second says whether it is certain that the broker has not got it.
    Failed(Refusal, bool),
    /// It must not be sent any more.
    Dead(Failure),
    /// Later, at no cost.
    Later(std::time::Duration),
    /// Later, at no cost, and everybody may see why; the second as above.
    Held(Refusal, bool),
}

/// The worker of the outbox.
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
        door: Destination::new(limit),
    });
    counters::register();
    let adapter = sender.broker.name();
    let handler = Handler::new(move |item| Arc::clone(&sender).handle(item))
        .policy(policy)
        .concurrency(settings.concurrency)
        .on_dead(|item, failure| Some(record_death(item, failure)))
        .on_settled(move |item, outcome| tell(adapter, item, outcome));
    let options = WorkerOptions {
        lease: settings.lease.seconds,
        // What is claimed ahead is lost time when the worker dies: little is enough to keep the senders busy.
        batch: u32::try_from(settings.concurrency)
            .unwrap_or(u32::MAX)
            .clamp(1, 500),
        prefetch: settings.concurrency,
        rescue_every: settings
            .lease
            .seconds
            .min(std::time::Duration::from_secs(1)),
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
    policy: Policy,
    door: Destination,
}

impl Sender {
    async fn handle(self: Arc<Self>, item: Item) -> Result<Handled, BoxError> {
        let work: Work = item.read()?;
        let attempt = self.attempt(item.id, &work).await?;
        Ok(self.conclude(&item, &work, attempt))
    }

    async fn attempt(&self, id: i64, work: &Work) -> Result<Attempt, BoxError> {
        if work.ledger.as_deref() != Some("accepted") {
            // Somebody redrove the row alone. Only a redrive that reopens the ledger, too, was meant to send it.
            return Ok(Attempt::Dead(Failure::with_category(
                "REDRIVE_NOT_CONFIRMED",
                Category::Data,
                "the ledger says that this order is finished; redrive it with `postrider orders redrive --allow-stale`",
            )));
        }
        if work.sent {
            let _entry = self.door.enter().await;
            let asked = self
                .breaker
                .call(self.broker.look_up(&work.key), judge)
                .await;
            match asked {
                Err(open) => return Ok(Attempt::Later(open.retry_after)),
                Ok(Err(refusal)) => return Ok(came_to_nothing(refusal, false)),
                Ok(Ok(Some(answer))) => return Ok(Attempt::Accepted(answer)),
                Ok(Ok(None)) => {}
            }
        }
        if work.expired {
            return Ok(Attempt::Dead(expired()));
        }
        // Whatever waits for its turn is marked, judged and perhaps cancelled only afterwards.
        let _entry = self.door.enter().await;
        // The permit comes before the mark: an order that an open breaker holds back was not sent.
        let permit = match self.breaker.permit() {
            Ok(permit) => permit,
            Err(open) => return Ok(Attempt::Later(open.retry_after)),
        };
        match store::about_to_send(&self.pool, id).await {
            Ok(Clearance::Send) => {}
            Ok(Clearance::Expired) => return Ok(Attempt::Dead(expired())),
            Ok(Clearance::Gone) => return Ok(Attempt::Later(OVERTAKEN)),
            Err(error) if postrider::error::database_is_transient(&error) => {
                tracing::warn!(%error, key = work.key, "the database is away: nothing is sent");
                return Ok(Attempt::Later(OVERTAKEN));
            }
            Err(error) => return Err(error.into()),
        }
        postrider_crashpoint::point!("orders.before_send")?;
        let sent = self.broker.send(order_for_broker(work)).await;
        permit.report(judge(&sent));
        postrider_crashpoint::point!("orders.after_send")?;
        match sent {
            Ok(answer) => Ok(Attempt::Accepted(answer)),
            // A broker that knows the id already may call the repetition a conflict: what does it know?
            Err(refusal) if may_be_repetition(work, &refusal) => {
                match self.broker.look_up(&work.key).await {
                    Ok(Some(answer)) => Ok(Attempt::Accepted(answer)),
                    Ok(None) => Ok(came_to_nothing(refusal, !work.sent)),
                    Err(unknown) => Ok(came_to_nothing(unknown, false)),
                }
            }
            Err(refusal) => {
                // An earlier attempt that nobody heard of may still arrive: what this one knows does not undo that.
                let certain = refusal.kind != Kind::Uncertain && !work.sent;
                Ok(came_to_nothing(refusal, certain))
            }
        }
    }

    /// The verdict, what is written with it, and what is told.
    fn conclude(&self, item: &Item, work: &Work, attempt: Attempt) -> Handled {
        let id = item.id;
        match attempt {
            Attempt::Later(wait) => Verdict::Snooze(wait).into(),
            Attempt::Dead(failure) => Verdict::Dead(failure).into(),
            Attempt::Accepted(answer) => {
                let key = work.key.clone();
                Handled::from(Verdict::Done).with(move |tx| {
                    Box::pin(async move {
                        let key = key_of(&key)?;
                        let done = ledger::Outcome::Succeeded;
                        Ledger::default()
                            .finish(tx, &key, done, Some(answer))
                            .await
                            .map_err(unbox)
                    })
                })
            }
            Attempt::Held(refusal, certain) => {
                let wait = refusal
                    .retry_after
                    .or_else(|| self.policy.delay(1, 0.5))
                    .unwrap_or(OVERTAKEN);
                tracing::error!(
                    key = work.key, status = "held", attempts = item.attempts, error_code = refusal.failure.code(),
                    error = refusal.failure.message(), adapter = self.broker.name(), again_in = ?wait, "order not sent"
                );
                Handled::from(Verdict::Snooze(wait)).with(move |tx| {
                    Box::pin(async move {
                        store::held(tx, id, &refusal.failure, certain)
                            .await
                            .map_err(Into::into)
                    })
                })
            }
            Attempt::Failed(refusal, certain) => {
                let failure = if certain || refusal.kind != Kind::Uncertain {
                    refusal.failure
                } else {
                    uncertain(&refusal.failure)
                };
                let verdict = Verdict::Retry {
                    failure,
                    after: refusal.retry_after,
                };
                let handled = Handled::from(verdict);
                if !certain {
                    return handled;
                }
                handled.with(move |tx| {
                    Box::pin(async move { store::not_sent(tx, id).await.map_err(Into::into) })
                })
            }
        }
    }
}

/// Counts and logs what has committed.
fn tell(adapter: &'static str, item: &Item, outcome: &Outcome) {
    let name = item.read::<Work>().map(|work| work.key);
    let key = name.as_deref().unwrap_or("unreadable");
    let attempts = item.attempts + 1;
    match outcome {
        Outcome::Done => {
            counters::sent(1);
            tracing::info!(key, status = "succeeded", attempts, adapter, "order sent");
        }
        Outcome::Retry { after, failure } => {
            counters::failed(1);
            let (error_code, error) = (failure.code(), failure.message());
            tracing::warn!(key, status = "failed", attempts, error_code, error, adapter, again_in = ?after, "order not sent");
        }
        Outcome::Dead { failure } | Outcome::Abandoned { failure } => {
            counters::aborted(1);
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
        Outcome::Snooze { .. } | Outcome::GiveBack => {}
    }
}

/// The ledger learns of a death in the transaction that declares it, whatever the cause.
fn record_death(item: &Item, failure: &Failure) -> Effect {
    let name = item.read::<Work>().map(|work| work.key);
    let result = json!({ "reason_code": failure.code(), "message": failure.message() });
    Box::new(move |tx| {
        Box::pin(async move {
            let key = key_of(&name?)?;
            let done = ledger::Outcome::Failed;
            match Ledger::default().finish(tx, &key, done, Some(result)).await {
                // It says so already: the row was redriven without it.
                Err(LedgerError::NotNow {
                    state: ledger::State::Failed,
                    ..
                }) => Ok(()),
                other => other.map_err(unbox),
            }
        })
    })
}

fn key_of(name: &str) -> Result<ledger::Key, BoxError> {
    key(name).map_err(Into::into)
}

/// The engine tells an outage from a refusal by the error's own type.
fn unbox(error: LedgerError) -> BoxError {
    match error {
        LedgerError::Engine(Error::Database(error)) => Box::new(error),
        other => Box::new(other),
    }
}

/// The order's own fields in one flat object, with the name that the broker knows it by.
fn order_for_broker(work: &Work) -> Value {
    let mut order = work.order.clone();
    order.remove("idempotency_key");
    order.insert(
        "client_order_id".to_owned(),
        Value::String(work.key.clone()),
    );
    Value::Object(order)
}

fn judge<T>(answer: &Result<T, Refusal>) -> breaker::Outcome {
    match answer {
        Ok(_) => breaker::Outcome::Answered,
        Err(refusal) => refusal.shows,
    }
}

/// `certain`: the broker has not got the order, and no earlier attempt can bring it there.
fn came_to_nothing(refusal: Refusal, certain: bool) -> Attempt {
    match refusal.kind {
        Kind::NotLetIn => Attempt::Held(refusal, certain),
        Kind::Rejected | Kind::NotTaken | Kind::Uncertain => Attempt::Failed(refusal, certain),
    }
}

fn may_be_repetition(work: &Work, refusal: &Refusal) -> bool {
    let code = refusal.failure.code();
    match refusal.kind {
        Kind::Rejected => work.sent || code == "409" || code.contains("DUPLICATE"),
        Kind::NotTaken => code == "409",
        Kind::Uncertain | Kind::NotLetIn => false,
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
