//! Moves protocols on: one step per event, and one verdict for whatever comes of it.
//!
//! A step begins with a look under the protocol's lock: an event of an older try, or of a protocol that is elsewhere by
//! now, is done without doing anything. What the step has found, the next state and the next event commit together with
//! the event's own end, or not at all. No lock is held while a stage works.

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
    OUTBOX, Settings, counters,
    document::Documents,
    model::{Criterion, Status, Step},
    operate,
    stage::{Kind, PIPELINE_FAILED, Request, Stage, Trouble},
    store::{self, Change, Reason, Standing, Work},
};

/// The database is away, or somebody else is at the protocol: soon again.
const SOON: Duration = Duration::from_secs(1);

/// What was tried in vain is given up for this reason.
const EXHAUSTED: &str = "Maximum retries exceeded";

/// What an event says.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Event {
    protocol_id: Uuid,
    #[serde(rename = "try")]
    try_no: i32,
    /// In seconds.
    age: f64,
}

/// What a look at the protocol has shown.
enum Begun {
    /// Go on with this.
    Go(Box<Work>),
    /// The event is of the past: nothing is to be done.
    Stale,
    /// Somebody has redriven the event of a protocol that was given up: the same as a retry.
    Redriven(Standing),
}

/// The stages of a pipeline.
pub struct Stages {
    /// From a document to criteria.
    pub extraction: Arc<dyn Stage>,
    /// From criteria to codes.
    pub grounding: Arc<dyn Stage>,
}

/// The worker of the outbox.
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
    counters::register();
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
            wait: settings.retry.initial_delay,
        });
        let max_retries = settings.max_retries;
        Handler::new(move |item| Arc::clone(&pipeline).handle(item))
            .policy(policy.clone())
            .concurrency(settings.concurrency)
            .on_dead(move |item, failure| record_death(step, max_retries, item, failure))
    };
    let extraction = handler(Step::Extraction, stages.extraction);
    let grounding = handler(Step::Grounding, stages.grounding);
    let options = WorkerOptions {
        lease: settings.lease.seconds,
        batch: u32::try_from(settings.concurrency)
            .unwrap_or(u32::MAX)
            .clamp(1, 500),
        // A step takes long: what is claimed ahead would only be kept from other workers.
        prefetch: settings.concurrency,
        rescue_every: settings.lease.seconds.min(SOON),
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
    /// How long something that is away is left alone.
    wait: Duration,
}

impl Pipeline {
    async fn handle(self: Arc<Self>, item: Item) -> Result<Handled, BoxError> {
        let event: Event = item.read()?;
        // The permit comes first: while the service is left alone, nothing begins and nothing is spent.
        let permit = match self.breaker.as_ref().map(Breaker::permit).transpose() {
            Ok(permit) => permit,
            Err(open) => return Ok(Verdict::Snooze(open.retry_after).into()),
        };
        let work = match self.begin(&item, event).await {
            Ok(Begun::Go(work)) => work,
            Ok(Begun::Stale) => return Ok(Verdict::Done.into()),
            Ok(Begun::Redriven(standing)) => return Ok(restart(event.protocol_id, standing)),
            Err(error) if postrider::internal::database_is_transient(&error) => {
                tracing::warn!(%error, protocol = %event.protocol_id, "the database is away: nothing begins");
                return Ok(Verdict::Snooze(SOON).into());
            }
            Err(error) => return Err(error.into()),
        };
        match self.step {
            Step::Extraction => postrider_crashpoint::point!("protocols.before_extraction")?,
            Step::Grounding => postrider_crashpoint::point!("protocols.before_grounding")?,
        }
        let found = match self.request(event, *work).await {
            Ok(request) => {
                let found = self.stage.run(request).await;
                if let Some(permit) = permit {
                    permit.report(judge(&found));
                }
                found
            }
            Err(trouble) => Err(trouble),
        };
        match self.step {
            Step::Extraction => postrider_crashpoint::point!("protocols.after_extraction")?,
            Step::Grounding => postrider_crashpoint::point!("protocols.after_grounding")?,
        }
        Ok(match found {
            Ok(criteria) => self.done(event, &criteria)?,
            Err(trouble) => self.failed(&item, event, trouble),
        })
    }

    /// Is there something to do? Then the protocol says so, and nobody can mistake it for idle.
    async fn begin(&self, item: &Item, event: Event) -> Result<Begun, sqlx::Error> {
        let step = self.step;
        let mut tx = self.pool.begin().await?;
        let found = store::lock_for_step(&mut tx, event.protocol_id, item.id, step).await?;
        let Some(work) = found.filter(|work| work.try_no == event.try_no && work.held) else {
            return Ok(Begun::Stale);
        };
        if work.status == Status::DeadLetter {
            let standing = store::lock(&mut tx, event.protocol_id, Duration::ZERO).await?;
            return Ok(standing.map_or(Begun::Stale, Begun::Redriven));
        }
        // Running already: whoever ran it was lost, and it is done once more.
        if work.status == step.running() {
            return Ok(Begun::Go(Box::new(work)));
        }
        if work.status != step.ready() && work.status != step.failed() {
            return Ok(Begun::Stale);
        }
        let Ok(start) = work.status.to(step.running()) else {
            return Ok(Begun::Stale);
        };
        let (id, change) = (event.protocol_id, Change::default());
        store::apply(&mut tx, id, event.try_no, start, change).await?;
        tx.commit().await?;
        Ok(Begun::Go(Box::new(work)))
    }

    async fn request(&self, event: Event, work: Work) -> Result<Request, Trouble> {
        let text = self
            .documents
            .text(event.protocol_id, &work, self.step)
            .await?;
        Ok(Request {
            protocol_id: event.protocol_id,
            try_no: event.try_no,
            title: work.title,
            text,
            criteria: match self.step {
                Step::Extraction => None,
                Step::Grounding => Some(work.criteria.map(|c| c.0).unwrap_or_default()),
            },
        })
    }

    /// The next state, what was found and the next event, in the transaction that ends this one.
    fn done(&self, event: Event, criteria: &[Criterion]) -> Result<Handled, BoxError> {
        let step = self.step;
        let terms: usize = criteria.iter().map(|criterion| criterion.terms.len()).sum();
        let remember = match step {
            Step::Extraction => json!({ "extraction": {
                "stage": self.stage.name(), "criteria": criteria.len() } }),
            Step::Grounding => json!({ "grounding": {
                "stage": self.stage.name(), "terms": terms } }),
        };
        let change = Change {
            remember: Some(remember),
            forget: &["last_failure"],
            criteria: Some(Some(serde_json::to_value(criteria)?)),
            ..Change::default()
        };
        let next = step.running().to(step.done())?;
        counters::done(step, 1);
        let (id, try_no) = (event.protocol_id, event.try_no);
        tracing::info!(protocol = %id, try_no, step = step.name(), criteria = criteria.len(), terms, "step done");
        Ok(Handled::from(Verdict::Done).with(move |tx| {
            Box::pin(async move {
                let moved = store::apply(tx, id, try_no, next, change).await?;
                if moved && step == Step::Extraction {
                    store::enqueue(tx, id, try_no, Step::Grounding).await?;
                }
                Ok(())
            })
        }))
    }

    /// Once more later, at a cost or without, or never.
    fn failed(&self, item: &Item, event: Event, trouble: Trouble) -> Handled {
        let (step, id, try_no) = (self.step, event.protocol_id, event.try_no);
        let patient = event.age < self.patience.as_secs_f64();
        let verdict = match trouble.kind {
            Kind::Permanent => Verdict::Dead(trouble.failure.clone()),
            Kind::Unavailable if patient => {
                let wait = trouble.retry_after.unwrap_or(self.wait);
                Verdict::Snooze(wait.max(Duration::from_millis(10)))
            }
            Kind::Unavailable | Kind::Transient => Verdict::Retry {
                failure: trouble.failure.clone(),
                after: trouble.retry_after,
            },
        };
        let again = match decide(&self.policy, verdict.clone(), item.attempts, 0.5) {
            Outcome::Retry { .. } | Outcome::Snooze { .. } => true,
            // Deaths are told where they are recorded, whatever the cause.
            _ => false,
        };
        if !again {
            return match trouble.kind {
                Kind::Permanent => given_up(step, event, item.attempts, &trouble),
                Kind::Unavailable | Kind::Transient => verdict.into(),
            };
        }
        counters::failed(step, 1);
        let failure = trouble.failure;
        tracing::warn!(
            protocol = %id, try_no, step = step.name(), attempts = item.attempts, error_code = failure.code(),
            error = failure.message(), ?verdict, "step not done"
        );
        Handled::from(verdict).with(move |tx| {
            Box::pin(async move {
                let change = Change {
                    reason: Reason::Set(failure.message().to_owned()),
                    remember: Some(last_failure(step, &failure)),
                    ..Change::default()
                };
                let back = step.running().to(step.failed())?;
                store::apply(tx, id, try_no, back, change).await?;
                Ok(())
            })
        })
    }
}

/// A permanent failure brings its own reason and category.
fn given_up(step: Step, event: Event, attempts: i32, trouble: &Trouble) -> Handled {
    let reason = trouble.failure.message().to_owned();
    let error = json!({ "category": trouble.category, "reason": reason, "retry_count": attempts });
    let failure = trouble.failure.clone();
    Handled::from(Verdict::Dead(failure.clone())).with(move |tx| {
        Box::pin(async move { bury(tx, step, event, &failure, reason, error).await })
    })
}

/// The protocol learns of its event's death in the transaction that declares it, whatever the cause.
fn record_death(step: Step, max_retries: u32, item: &Item, failure: &Failure) -> Option<Effect> {
    counters::dead(step, 1);
    let event = item.read::<Event>();
    let failure = failure.clone();
    let made = item.attempts.saturating_add(1);
    let exhausted = failure.is_transient() && i64::from(made) >= i64::from(max_retries);
    let (reason, retry_count) = if exhausted {
        (EXHAUSTED.to_owned(), made)
    } else {
        (failure.message().to_owned(), item.attempts)
    };
    Some(Box::new(move |tx| {
        Box::pin(async move {
            let error = json!({ "category": PIPELINE_FAILED, "reason": reason, "retry_count": retry_count });
            bury(tx, step, event?, &failure, reason, error).await
        })
    }))
}

/// The protocol becomes a dead letter, unless it is one or has gone on.
async fn bury(
    tx: &mut PgConnection,
    step: Step,
    event: Event,
    failure: &Failure,
    reason: String,
    error: Value,
) -> Result<(), BoxError> {
    let (id, try_no) = (event.protocol_id, event.try_no);
    let standing = store::lock(tx, id, Duration::ZERO).await?;
    let Some(standing) = standing.filter(|standing| standing.try_no == try_no) else {
        return Ok(());
    };
    let mut status = standing.status;
    if status == Status::Uploaded && step == Step::Extraction {
        // It never came to its first step: a worker was lost over it each time.
        let start = status.to(Status::Extracting)?;
        store::apply(tx, id, try_no, start, Change::default()).await?;
        status = start.to();
    }
    if status != step.running() && status != step.failed() {
        return Ok(());
    }
    tracing::error!(
        protocol = %id, try_no, step = step.name(), error_code = failure.code(), error = failure.message(),
        "protocol given up"
    );
    let mut remember = last_failure(step, failure);
    remember["error"] = error;
    let change = Change {
        reason: Reason::Set(reason),
        remember: Some(remember),
        ..Change::default()
    };
    let death = status.to(Status::DeadLetter)?;
    store::apply(tx, id, try_no, death, change).await?;
    Ok(())
}

/// A redriven event of a protocol that was given up begins its next try; the event itself is done.
fn restart(id: Uuid, seen: Standing) -> Handled {
    Handled::from(Verdict::Done).with(move |tx| {
        Box::pin(async move {
            let standing = store::lock(tx, id, Duration::ZERO).await?;
            let same = |s: &Standing| s.try_no == seen.try_no && s.status == seen.status;
            let Some(standing) = standing.filter(same) else {
                return Ok(());
            };
            let step = standing.status.to(Status::Uploaded)?;
            operate::next_try(tx, id, &standing, step, Change::default()).await?;
            Ok(())
        })
    })
}

fn last_failure(step: Step, failure: &Failure) -> Value {
    json!({ "last_failure": {
        "step": step.name(), "code": failure.code(), "message": failure.message() } })
}

fn judge(found: &Result<Vec<Criterion>, Trouble>) -> breaker::Outcome {
    match found {
        Ok(_) => breaker::Outcome::Answered,
        Err(trouble) => trouble.shows,
    }
}
