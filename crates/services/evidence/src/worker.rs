//! Attaches: hold what may be tried, send it, record what came of it.
//!
//! No transaction is open while the Case API is called. What protects an artifact meanwhile is that it names the task
//! which holds it, and that only the holder's result is written. A task whose worker died is claimed again, finds its
//! artifacts still held by itself, and sends them once more under the same ids: the API knows them, or attaches them
//! now. The call that nobody recorded stands in the journal as lost, not as an attempt.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use postrider::{
    BoxError, Effect, Error, Handled, Handler, Result, RetryPolicy, Verdict, Worker, WorkerOptions,
    batcher::{Batcher, BatcherOptions},
    breaker::{self, Breaker, Breakers},
    failure::Failure,
    lease::Item,
    outbox::OUTBOX,
    wake::Waker,
};
use postrider_blob::Store;
use serde::Deserialize;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    ATTACH_TASKS, Settings,
    cases::{CaseApi, Refusal, Upload},
    counters, files,
    model::{Code, RetryStatus, after_failure},
    store::{
        attach::{self, Conclusion, Held, Holder, Told, Written},
        schedule,
    },
};

/// The breaker's name.
pub const DEPENDENCY: &str = "evidence.case_api";

/// So many artifacts of a row are handled per claim: a worker that dies loses no more than these.
const PIECE: i64 = 32;

/// Rows under way for each call that is allowed at once: while some are sent, others are held and recorded, many in one
/// statement.
const ROWS_PER_CALL: usize = 4;
const MOST_ROWS: usize = 256;

/// What a claim gives us of an event.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Task {
    event_id: Uuid,
    file_job_row_id: Uuid,
    is_retry: bool,
}

impl Task {
    const fn holder(self, id: i64) -> Holder {
        Holder {
            task: id,
            row: self.file_job_row_id,
            event: self.event_id,
            is_retry: self.is_retry,
        }
    }
}

/// What came of one artifact.
enum Attempt {
    /// Sent, or not sendable: an attempt either way.
    Made(Told),
    /// The Case API is left alone for now: no attempt.
    Later(Uuid, Duration),
}

/// The worker of attach tasks.
pub fn worker(
    pool: PgPool,
    store: Store,
    settings: &Settings,
    cases: Arc<dyn CaseApi>,
    breakers: &Breakers,
    breaker: breaker::Settings,
) -> Result<Worker> {
    let policy = settings
        .policy()
        .map_err(|error| Error::invalid("evidence.retry", error.to_string()))?;
    counters::register();
    let name = WorkerOptions::default().name;
    let rows = (ROWS_PER_CALL * settings.concurrency).clamp(1, MOST_ROWS);
    let sender = Arc::new(Sender {
        store,
        cases,
        breaker: breakers.get_with(DEPENDENCY, breaker),
        policy,
        look_up: settings.case_api.look_up,
        calls: Semaphore::new(settings.concurrency),
        gate: gate(&pool, &name, rows),
        waker: Waker::new(pool.clone()),
        name: name.clone(),
        results: Mutex::default(),
    });
    let (writer, dying, teller) = (
        Arc::clone(&sender),
        Arc::clone(&sender),
        Arc::clone(&sender),
    );
    let handler = Handler::new(move |item| Arc::clone(&sender).handle(item))
        .concurrency(rows)
        .batch_effect(move |tx, conclusions: Vec<Arc<Conclusion>>| {
            let sender = Arc::clone(&writer);
            Box::pin(async move { sender.record(tx, &conclusions).await })
        })
        .on_dead(move |item, failure| Arc::clone(&dying).mourn(item, failure))
        .on_settled(move |item, _| teller.announce(item.id));
    let options = WorkerOptions {
        name,
        lease: settings.lease.seconds,
        batch: u32::try_from(rows).unwrap_or(u32::MAX),
        // What is claimed ahead is lost time when the worker dies: little is enough to keep the senders busy.
        prefetch: rows,
        rescue_every: settings.lease.seconds.min(Duration::from_secs(1)),
        ..WorkerOptions::default()
    };
    Ok(Worker::new(pool, &ATTACH_TASKS)?
        .options(options)
        .handle_others(handler))
}

/// Where rows that begin at the same time hold their artifacts together.
fn gate(pool: &PgPool, worker: &str, most: usize) -> Batcher<Holder, Vec<Held>> {
    let worker = worker.to_owned();
    let options = BatcherOptions {
        max_batch: most,
        ..BatcherOptions::new("evidence artifact leases")
    };
    Batcher::with_connection(pool.clone(), options, move |connection, holders| {
        let worker = worker.clone();
        Box::pin(async move { Ok(hold(connection, &worker, holders).await?) })
    })
}

/// What each holds, in their order.
async fn hold(
    connection: &mut PgConnection,
    worker: &str,
    holders: &[Holder],
) -> Result<Vec<Vec<Held>>, sqlx::Error> {
    let mut by_task: HashMap<i64, Vec<Held>> = HashMap::new();
    let mut left = holders.to_vec();
    while !left.is_empty() {
        let mut rows = HashSet::new();
        let (now, later) = left.into_iter().partition(|h| rows.insert(h.row));
        left = later;
        let now: Vec<Holder> = now;
        for held in attach::hold(&mut *connection, worker, &now, PIECE).await? {
            by_task.entry(held.task).or_default().push(held);
        }
    }
    let of = |holder: &Holder| by_task.remove(&holder.task).unwrap_or_default();
    Ok(holders.iter().map(of).collect())
}

struct Sender {
    store: Store,
    cases: Arc<dyn CaseApi>,
    breaker: Arc<Breaker>,
    policy: RetryPolicy,
    look_up: bool,
    /// Rows are handled side by side, and so are the files of a row: this bounds the calls of all.
    calls: Semaphore,
    gate: Batcher<Holder, Vec<Held>>,
    waker: Waker,
    name: String,
    /// What a task has written, until it is known to be committed.
    results: Mutex<HashMap<i64, Vec<Written>>>,
}

impl Sender {
    async fn handle(self: Arc<Self>, item: Item) -> Result<Handled, BoxError> {
        let task: Task = item.read()?;
        // Left over from a settling that did not happen.
        drop(self.take(item.id));
        let holder = task.holder(item.id);
        let held = match self.gate.call(holder).await {
            Ok(held) => held,
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "the database is away: nothing is sent");
                return Ok(Verdict::Snooze(Duration::from_secs(1)).into());
            }
            Err(error) => return Err(error.into()),
        };
        if held.is_empty() {
            return Ok(Verdict::Done.into());
        }
        postrider_crashpoint::point!("evidence.held")?;
        let more = i64::try_from(held.len()).unwrap_or(i64::MAX) >= PIECE;
        let attempts = join_all(held.iter().map(|artifact| self.attempt(artifact))).await;
        postrider_crashpoint::point!("evidence.attached")?;
        Ok(conclude(holder, attempts, more))
    }

    async fn attempt(&self, held: &Held) -> Attempt {
        // Closed only with the program.
        let _turn = self.calls.acquire().await;
        let started = Instant::now();
        let opened = match files::open(&self.store, held).await {
            Ok(opened) => opened,
            Err((code, message)) => return self.failed(held, code, message, None, started),
        };
        let permit = match self.breaker.permit() {
            Ok(permit) => permit,
            Err(open) => return Attempt::Later(held.id, open.retry_after),
        };
        let called = async {
            if self.look_up && may_have_arrived(held) {
                let known = self.cases.look_up(held.case_id, held.id).await?;
                if known {
                    return Ok(());
                }
            }
            let upload = Upload {
                case_id: held.case_id,
                artifact_id: held.id,
                file_name: held.file_name.clone(),
                file_type: held.file_type.clone(),
                sha256: opened.sha256,
                size: opened.size,
                content: opened.content,
            };
            self.cases.attach(upload).await
        };
        let answer = called.await;
        permit.report(judge(&answer));
        match answer {
            Ok(()) => Attempt::Made(Told {
                id: held.id,
                failure: None,
                retry_status: if held.attempt_count > 0 {
                    RetryStatus::RetrySuccess
                } else {
                    RetryStatus::Pending
                },
                wait: None,
                took: started.elapsed().as_secs_f64(),
            }),
            Err(refusal) => {
                let Refusal {
                    code,
                    message,
                    retry_after,
                    ..
                } = refusal;
                self.failed(held, code, message, retry_after, started)
            }
        }
    }

    fn failed(
        &self,
        held: &Held,
        code: Code,
        message: String,
        retry_after: Option<Duration>,
        started: Instant,
    ) -> Attempt {
        let told = failure_of(&self.policy, held, code, &message, retry_after);
        Attempt::Made(Told {
            took: started.elapsed().as_secs_f64(),
            ..told
        })
    }

    async fn record(
        &self,
        tx: &mut PgConnection,
        conclusions: &[Arc<Conclusion>],
    ) -> Result<(), BoxError> {
        let written = attach::record(tx, &self.name, conclusions).await;
        let mut by_task: HashMap<i64, Vec<Written>> = HashMap::new();
        for result in written.map_err(unbox)? {
            by_task.entry(result.task).or_default().push(result);
        }
        postrider_crashpoint::point!("evidence.recorded")?;
        for (task, written) in by_task {
            self.keep(task, written);
        }
        Ok(())
    }

    /// A task that is given up takes its untried artifacts with it: they failed, and both notifications can come.
    fn mourn(self: Arc<Self>, item: &Item, failure: &Failure) -> Option<Effect> {
        let task: Task = item.read().ok()?;
        let (id, failure) = (item.id, failure.clone());
        Some(Box::new(move |tx| {
            Box::pin(async move {
                let holder = task.holder(id);
                let why = failure.to_string();
                let written = give_up(tx, &self.policy, &self.name, holder, &why).await;
                self.keep(id, written.map_err(unbox)?);
                Ok(())
            })
        }))
    }

    fn keep(&self, task: i64, written: Vec<Written>) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.insert(task, written);
    }

    fn take(&self, task: i64) -> Option<Vec<Written>> {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.remove(&task)
    }

    /// Counts what has committed, and has its events go out.
    fn announce(&self, task: i64) {
        let Some(written) = self.take(task) else {
            return;
        };
        for result in &written {
            counters::attempted(result.attempt_count, result.code.is_none());
            if result.retry_status == RetryStatus::PermanentFailed
                && let Some(code) = &result.code
            {
                counters::permanent_failure(code, 1);
            }
        }
        self.waker.wake(&OUTBOX);
    }
}

/// The verdict, with everything that is written at its settling.
fn conclude(holder: Holder, attempts: Vec<Attempt>, more: bool) -> Handled {
    let (mut told, mut put_off) = (Vec::with_capacity(attempts.len()), Vec::new());
    let mut wait = Duration::ZERO;
    for attempt in attempts {
        match attempt {
            Attempt::Made(made) => told.push(made),
            Attempt::Later(artifact, later) => {
                put_off.push(artifact);
                wait = wait.max(later);
            }
        }
    }
    let verdict = if more || !put_off.is_empty() {
        Verdict::Snooze(wait)
    } else {
        Verdict::Done
    };
    Handled::from(verdict).with_value(Conclusion {
        holder,
        told,
        put_off,
    })
}

/// What a failure means for an artifact: whether it is tried again, and when.
fn failure_of(
    policy: &RetryPolicy,
    held: &Held,
    code: Code,
    message: &str,
    retry_after: Option<Duration>,
) -> Told {
    let attempts = u32::try_from(held.attempt_count + 1).unwrap_or(u32::MAX);
    let max_retries = u32::try_from(held.max_retries).unwrap_or(0);
    let retry_status = after_failure(code, attempts, max_retries);
    let wait = (retry_status != RetryStatus::PermanentFailed).then(|| {
        // The artifact's own limit decides whether, the policy only how long.
        let backoff = policy.delay(attempts, rand::random()).unwrap_or_default();
        backoff.max(retry_after.unwrap_or_default()).as_secs_f64()
    });
    // Cleaned as every stored failure is: no secrets, no control characters, not endless.
    let message = Failure::with_category(code.as_str(), code.category(), message);
    Told {
        id: held.id,
        failure: Some((code, message.message().to_owned())),
        retry_status,
        wait,
        took: 0.0,
    }
}

/// Whatever the holder would have tried has failed.
async fn give_up(
    tx: &mut PgConnection,
    policy: &RetryPolicy,
    worker: &str,
    holder: Holder,
    why: &str,
) -> Result<Vec<Written>> {
    let held = attach::hold(tx, worker, &[holder], i64::MAX).await?;
    let failed = |held: &Held| failure_of(policy, held, Code::SystemError, why, None);
    let conclusion = Conclusion {
        holder,
        told: held.iter().map(failed).collect(),
        put_off: Vec::new(),
    };
    attach::record(tx, worker, &[Arc::new(conclusion)]).await
}

/// The same for a row whose first event died before it became a task; says how many artifacts were marked.
pub(crate) async fn give_up_row(
    pool: &PgPool,
    policy: &RetryPolicy,
    row: Uuid,
    why: &str,
) -> Result<usize> {
    let mut tx = pool.begin().await?;
    let Some((task, event)) = schedule::stillborn(&mut tx, row, why).await? else {
        return Ok(0);
    };
    let holder = Holder {
        task,
        row,
        event,
        is_retry: false,
    };
    let written = give_up(&mut tx, policy, "scheduler", holder, why).await?;
    tx.commit().await?;
    Ok(written.len())
}

/// Was there a call whose outcome nobody knows?
fn may_have_arrived(held: &Held) -> bool {
    let uncertain = |code: &str| {
        matches!(
            code,
            "ATTACHMENT_API_TIMEOUT" | "NETWORK_TIMEOUT" | "500" | "503"
        )
    };
    held.lost || held.last_code.as_deref().is_some_and(uncertain)
}

fn judge(answer: &Result<(), Refusal>) -> breaker::Outcome {
    match answer {
        Ok(()) => breaker::Outcome::Answered,
        Err(refusal) => refusal.shows,
    }
}

/// The engine tells an outage from a refusal by the error's own type.
fn unbox(error: Error) -> BoxError {
    match error {
        Error::Database(error) => Box::new(error),
        other => Box::new(other),
    }
}
