//! The pipeline: runs one step per event, and settles the event with one verdict.
//!
//! A step starts by reading the protocol under its lock: an event of an older try, or of a protocol that is in another
//! state by now, completes without effect. The step's result, the next state and the next event commit together with the
//! completion of the event. No lock is held while a stage runs.

use std::{sync::Arc, time::Duration};

use postrider::{
    BoxError, Effect, Error, Handled, Handler, Result, RetryPolicy, Verdict, Worker, WorkerOptions,
    breaker::{self, Breaker, Breakers},
    failure::Failure,
    internal::decide,
    lease::{Item, Outcome},
};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::{
    OUTBOX, Settings,
    document::Documents,
    gauges,
    model::{Criterion, Status, Step},
    service::transitions,
    stage::{FailureKind, PIPELINE_FAILED, Request, Stage, StageError},
    store::{self, Change, ErrorReason, LockedProtocol, StepInput},
};

/// Delay before an event is retried when the database is unavailable.
const DATABASE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The error reason of a protocol that is out of attempts.
const OUT_OF_ATTEMPTS: &str = "Maximum retries exceeded";

/// The payload of an event.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Event {
    protocol_id: Uuid,
    #[serde(rename = "try")]
    try_no: i32,
    /// In seconds.
    age: f64,
}

/// How a step starts.
enum StepStart {
    /// It runs with this input.
    Run(Box<StepInput>),
    /// The event is out of date: there is nothing to do.
    Stale,
    /// The event of a dead letter was redriven: that is a retry of the protocol.
    Redriven(LockedProtocol),
}

/// The stages of a pipeline.
pub struct Stages {
    /// Extracts criteria from a document.
    pub extraction: Arc<dyn Stage>,
    /// Maps terms of criteria to codes.
    pub grounding: Arc<dyn Stage>,
}

/// The worker of [`OUTBOX`].
pub fn worker(
    pool: PgPool,
    settings: &Settings,
    documents: Documents,
    stages: Stages,
    breakers: &Breakers,
    breaker: breaker::Settings,
) -> Result<Worker> {
    let policy = settings
        .policy()
        .map_err(|error| Error::invalid("protocols.retry", error.to_string()))?;
    gauges::register();
    let documents = Arc::new(documents);
    let handler = |step: Step, stage: Arc<dyn Stage>| {
        let breaker = stage
            .is_remote()
            .then(|| breakers.get_with(&format!("protocols.{}", step.name()), breaker));
        let pipeline = Arc::new(Pipeline {
            pool: pool.clone(),
            documents: Arc::clone(&documents),
            step,
            stage,
            breaker,
            policy: policy.clone(),
            patience: settings.stages.patience,
            unavailable_delay: settings.retry.initial_delay,
        });
        let max_retries = settings.max_retries;
        Handler::new(move |item| Arc::clone(&pipeline).handle(item))
            .policy(policy.clone())
            .concurrency(settings.concurrency)
            .on_dead(move |item, failure| on_dead(step, max_retries, item, failure))
    };
    let extraction = handler(Step::Extraction, stages.extraction);
    let grounding = handler(Step::Grounding, stages.grounding);
    let options = WorkerOptions {
        lease: settings.lease.seconds,
        batch: u32::try_from(settings.concurrency)
            .unwrap_or(u32::MAX)
            .clamp(1, 500),
        // A step takes long: a larger prefetch would only keep items from other workers.
        prefetch: settings.concurrency,
        rescue_every: settings.lease.seconds.min(DATABASE_RETRY_DELAY),
        ..WorkerOptions::default()
    };
    Ok(Worker::new(pool.clone(), &OUTBOX)?
        .options(options)
        .handle(Step::Extraction.event(), extraction)
        .handle(Step::Grounding.event(), grounding))
}

struct Pipeline {
    pool: PgPool,
    documents: Arc<Documents>,
    step: Step,
    stage: Arc<dyn Stage>,
    breaker: Option<Arc<Breaker>>,
    policy: RetryPolicy,
    patience: Duration,
    /// Delay before an unavailable service is called again.
    unavailable_delay: Duration,
}

impl Pipeline {
    async fn handle(self: Arc<Self>, item: Item) -> Result<Handled, BoxError> {
        let event: Event = item.read()?;
        // The permit comes first: while the breaker is open, no step starts and no attempt is spent.
        let permit = match self.breaker.as_ref().map(Breaker::permit).transpose() {
            Ok(permit) => permit,
            Err(open) => return Ok(Verdict::Snooze(open.retry_after).into()),
        };
        let input = match self.start(&item, event).await {
            Ok(StepStart::Run(input)) => input,
            Ok(StepStart::Stale) => return Ok(Verdict::Done.into()),
            Ok(StepStart::Redriven(protocol)) => return Ok(restart(event.protocol_id, protocol)),
            Err(error) if postrider::internal::database_is_transient(&error) => {
                tracing::warn!(%error, protocol = %event.protocol_id, "database unavailable; retrying the step later");
                return Ok(Verdict::Snooze(DATABASE_RETRY_DELAY).into());
            }
            Err(error) => return Err(error.into()),
        };
        match self.step {
            Step::Extraction => postrider_crashpoint::point!("protocols.before_extraction")?,
            Step::Grounding => postrider_crashpoint::point!("protocols.before_grounding")?,
        }
        let result = match self.request(event, *input).await {
            Ok(request) => {
                let result = self.stage.run(request).await;
                if let Some(permit) = permit {
                    permit.report(match &result {
                        Ok(_) => breaker::Outcome::Answered,
                        Err(error) => error.breaker,
                    });
                }
                result
            }
            Err(error) => Err(error),
        };
        match self.step {
            Step::Extraction => postrider_crashpoint::point!("protocols.after_extraction")?,
            Step::Grounding => postrider_crashpoint::point!("protocols.after_grounding")?,
        }
        Ok(match result {
            Ok(criteria) => self.done(event, &criteria)?,
            Err(error) => self.failed(&item, event, error),
        })
    }

    /// Checks whether there is something to do, and if so puts the protocol into the running state.
    async fn start(&self, item: &Item, event: Event) -> Result<StepStart, sqlx::Error> {
        let step = self.step;
        let mut tx = self.pool.begin().await?;
        let found = store::lock_for_step(&mut tx, event.protocol_id, item.id, step).await?;
        let current = |input: &StepInput| input.try_no == event.try_no && input.leased;
        let Some(input) = found.filter(current) else {
            return Ok(StepStart::Stale);
        };
        if input.status == Status::DeadLetter {
            let protocol = store::lock(&mut tx, event.protocol_id, Duration::ZERO).await?;
            return Ok(protocol.map_or(StepStart::Stale, StepStart::Redriven));
        }
        // Already running: the worker that ran it was lost, so it runs again.
        if input.status == step.running() {
            return Ok(StepStart::Run(Box::new(input)));
        }
        if input.status != step.ready() && input.status != step.failed() {
            return Ok(StepStart::Stale);
        }
        let Ok(start) = input.status.transition_to(step.running()) else {
            return Ok(StepStart::Stale);
        };
        let (id, change) = (event.protocol_id, Change::default());
        store::apply(&mut tx, id, event.try_no, start, change).await?;
        tx.commit().await?;
        Ok(StepStart::Run(Box::new(input)))
    }

    async fn request(&self, event: Event, input: StepInput) -> Result<Request, StageError> {
        let text = self
            .documents
            .text(event.protocol_id, &input, self.step)
            .await?;
        Ok(Request {
            protocol_id: event.protocol_id,
            try_no: event.try_no,
            title: input.title,
            text,
            criteria: match self.step {
                Step::Extraction => None,
                Step::Grounding => Some(input.criteria.map(|c| c.0).unwrap_or_default()),
            },
        })
    }

    /// Writes the result, the next state and the next event in the transaction that completes this one.
    fn done(&self, event: Event, criteria: &[Criterion]) -> Result<Handled, BoxError> {
        let step = self.step;
        let terms: usize = criteria.iter().map(|criterion| criterion.terms.len()).sum();
        let metadata = match step {
            Step::Extraction => json!({ "extraction": {
                "stage": self.stage.name(), "criteria": criteria.len() } }),
            Step::Grounding => json!({ "grounding": {
                "stage": self.stage.name(), "terms": terms } }),
        };
        let change = Change {
            add_metadata: Some(metadata),
            remove_metadata: &["last_failure"],
            criteria: Some(Some(serde_json::to_value(criteria)?)),
            ..Change::default()
        };
        let next = step.running().transition_to(step.done())?;
        gauges::done(step, 1);
        let (id, try_no) = (event.protocol_id, event.try_no);
        tracing::info!(protocol = %id, try_no, step = step.name(), criteria = criteria.len(), terms, "step done");
        Ok(Handled::from(Verdict::Done).with(move |tx| {
            Box::pin(async move {
                let applied = store::apply(tx, id, try_no, next, change).await?;
                if applied && step == Step::Extraction {
                    store::enqueue(tx, id, try_no, Step::Grounding).await?;
                }
                Ok(())
            })
        }))
    }

    /// Retries, snoozes or fails the event, by the kind of error.
    fn failed(&self, item: &Item, event: Event, error: StageError) -> Handled {
        let (step, id, try_no) = (self.step, event.protocol_id, event.try_no);
        let waiting = event.age < self.patience.as_secs_f64();
        let verdict = match error.kind {
            FailureKind::Permanent => Verdict::Dead(error.failure.clone()),
            FailureKind::Unavailable if waiting => {
                let delay = error.retry_after.unwrap_or(self.unavailable_delay);
                Verdict::Snooze(delay.max(Duration::from_millis(10)))
            }
            FailureKind::Unavailable | FailureKind::Transient => Verdict::Retry {
                failure: error.failure.clone(),
                after: error.retry_after,
            },
        };
        let retries = match decide(&self.policy, verdict.clone(), item.attempts, 0.5) {
            Outcome::Retry { .. } | Outcome::Snooze { .. } => true,
            // `on_dead` records and logs it.
            _ => false,
        };
        if !retries {
            return match error.kind {
                FailureKind::Permanent => permanent_failure(step, event, item.attempts, &error),
                FailureKind::Unavailable | FailureKind::Transient => verdict.into(),
            };
        }
        gauges::failed(step, 1);
        let failure = error.failure;
        tracing::warn!(
            protocol = %id, try_no, step = step.name(), attempts = item.attempts, error_code = failure.code(),
            error = failure.message(), ?verdict, "step failed; it will be retried"
        );
        Handled::from(verdict).with(move |tx| {
            Box::pin(async move {
                let change = Change {
                    reason: ErrorReason::Set(failure.message().to_owned()),
                    add_metadata: Some(last_failure(step, &failure)),
                    ..Change::default()
                };
                let failed = step.running().transition_to(step.failed())?;
                store::apply(tx, id, try_no, failed, change).await?;
                Ok(())
            })
        })
    }
}

/// A permanent failure has its own reason and category.
fn permanent_failure(step: Step, event: Event, attempts: i32, error: &StageError) -> Handled {
    let reason = error.failure.message().to_owned();
    let details = json!({ "category": error.category, "reason": reason, "retry_count": attempts });
    let failure = error.failure.clone();
    Handled::from(Verdict::Dead(failure.clone())).with(move |tx| {
        Box::pin(async move { mark_dead(tx, step, event, &failure, reason, details).await })
    })
}

/// Marks the protocol dead in the transaction that marks its event dead, whatever the cause.
fn on_dead(step: Step, max_retries: u32, item: &Item, failure: &Failure) -> Option<Effect> {
    gauges::dead(step, 1);
    let event = item.read::<Event>();
    let failure = failure.clone();
    let attempts = item.attempts.saturating_add(1);
    let exhausted = failure.is_transient() && i64::from(attempts) >= i64::from(max_retries);
    let (reason, retry_count) = if exhausted {
        (OUT_OF_ATTEMPTS.to_owned(), attempts)
    } else {
        (failure.message().to_owned(), item.attempts)
    };
    Some(Box::new(move |tx| {
        Box::pin(async move {
            let details = json!({ "category": PIPELINE_FAILED, "reason": reason, "retry_count": retry_count });
            mark_dead(tx, step, event?, &failure, reason, details).await
        })
    }))
}

/// Makes the protocol a dead letter, unless it already is one or has moved on.
async fn mark_dead(
    tx: &mut PgConnection,
    step: Step,
    event: Event,
    failure: &Failure,
    reason: String,
    details: Value,
) -> Result<(), BoxError> {
    let (id, try_no) = (event.protocol_id, event.try_no);
    let protocol = store::lock(tx, id, Duration::ZERO).await?;
    let Some(protocol) = protocol.filter(|protocol| protocol.try_no == try_no) else {
        return Ok(());
    };
    let mut status = protocol.status;
    if status == Status::Uploaded && step == Step::Extraction {
        // Its first step never started: a worker was lost each time.
        let start = status.transition_to(Status::Extracting)?;
        store::apply(tx, id, try_no, start, Change::default()).await?;
        status = start.to();
    }
    if status != step.running() && status != step.failed() {
        return Ok(());
    }
    tracing::error!(
        protocol = %id, try_no, step = step.name(), error_code = failure.code(), error = failure.message(),
        "protocol is a dead letter; fix the cause and retry it"
    );
    let mut metadata = last_failure(step, failure);
    metadata["error"] = details;
    let change = Change {
        reason: ErrorReason::Set(reason),
        add_metadata: Some(metadata),
        ..Change::default()
    };
    let dead = status.transition_to(Status::DeadLetter)?;
    store::apply(tx, id, try_no, dead, change).await?;
    Ok(())
}

/// A redriven event of a dead letter starts the next try; the event itself is done.
fn restart(id: Uuid, seen: LockedProtocol) -> Handled {
    Handled::from(Verdict::Done).with(move |tx| {
        Box::pin(async move {
            let protocol = store::lock(tx, id, Duration::ZERO).await?;
            let unchanged = |p: &LockedProtocol| p.try_no == seen.try_no && p.status == seen.status;
            let Some(protocol) = protocol.filter(unchanged) else {
                return Ok(());
            };
            let restart = protocol.status.transition_to(Status::Uploaded)?;
            transitions::start_next_try(tx, id, &protocol, restart, Change::default()).await?;
            Ok(())
        })
    })
}

fn last_failure(step: Step, failure: &Failure) -> Value {
    json!({ "last_failure": {
        "step": step.name(), "code": failure.code(), "message": failure.message() } })
}
