//! Attaches files: hold artifacts, send them, record the results.
//!
//! No transaction is open while the Case API is called. Meanwhile each artifact names the task that holds it, and only
//! that task's result is written. A task whose worker died is claimed again, still holds its artifacts, and sends them
//! again under the same ids: the API recognises them, or attaches them now. The unrecorded call is logged as LOST, not as
//! an attempt.

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
    files, gauges,
    model::{Code, RetryStatus, after_failure},
    store::{
        attach::{self, AttachTask, AttemptResult, HeldArtifact, RecordedResult, TaskResult},
        schedule,
    },
};

/// Name of the breaker around the Case API.
pub const DEPENDENCY: &str = "evidence.case_api";

/// Maximum number of artifacts of a row per claim: no more are lost with a worker.
const MAX_ARTIFACTS: i64 = 32;

/// Rows in progress per concurrent call: while some are sent, others are held and recorded, many per statement.
const ROWS_PER_CALL: usize = 4;
const MAX_ROWS: usize = 256;

/// Snooze while the database is unavailable.
const DATABASE_DELAY: Duration = Duration::from_secs(1);

/// The payload of a claimed task.
#[derive(Debug, Clone, Copy, Deserialize)]
struct TaskPayload {
    event_id: Uuid,
    file_job_row_id: Uuid,
    is_retry: bool,
}

impl TaskPayload {
    const fn task(self, id: i64) -> AttachTask {
        AttachTask {
            id,
            row: self.file_job_row_id,
            event: self.event_id,
            is_retry: self.is_retry,
        }
    }
}

/// The outcome for one artifact.
enum Attempt {
    /// Sent, or not sendable: an attempt either way.
    Made(AttemptResult),
    /// The Case API's breaker is open: no attempt.
    Postponed(Uuid, Duration),
}

/// The worker for attach tasks. Must be called inside a tokio runtime.
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
    gauges::register();
    let name = WorkerOptions::default().name;
    let rows = (ROWS_PER_CALL * settings.concurrency).clamp(1, MAX_ROWS);
    let attacher = Arc::new(Attacher {
        store,
        cases,
        breaker: breakers.get_with(DEPENDENCY, breaker),
        policy,
        look_up: settings.case_api.look_up,
        calls: Semaphore::new(settings.concurrency),
        artifact_leases: artifact_leases(&pool, &name, rows),
        waker: Waker::new(pool.clone()),
        name: name.clone(),
        recorded: Mutex::default(),
    });
    let [on_record, on_dead, on_settled] = [(); 3].map(|()| Arc::clone(&attacher));
    let handler = Handler::new(move |item| Arc::clone(&attacher).handle(item))
        .concurrency(rows)
        .batch_effect(move |tx, results: Vec<Arc<TaskResult>>| {
            let attacher = Arc::clone(&on_record);
            Box::pin(async move { attacher.record(tx, &results).await })
        })
        .on_dead(move |item, failure| Arc::clone(&on_dead).fail_task(item, failure))
        .on_settled(move |item, _| on_settled.publish(item.id));
    let options = WorkerOptions {
        name,
        lease: settings.lease.seconds,
        batch: u32::try_from(rows).unwrap_or(u32::MAX),
        // Prefetched tasks wait out their lease if the worker dies; this many keep it busy.
        prefetch: rows,
        rescue_every: settings.lease.seconds.min(Duration::from_secs(1)),
        ..WorkerOptions::default()
    };
    Ok(Worker::new(pool, &ATTACH_TASKS)?
        .options(options)
        .handle_others(handler))
}

fn artifact_leases(
    pool: &PgPool,
    worker: &str,
    max_batch: usize,
) -> Batcher<AttachTask, Vec<HeldArtifact>> {
    let worker = worker.to_owned();
    let options = BatcherOptions {
        max_batch,
        ..BatcherOptions::new("evidence artifact leases")
    };
    Batcher::with_connection(pool.clone(), options, move |connection, tasks| {
        let worker = worker.clone();
        Box::pin(async move { Ok(hold(connection, &worker, tasks).await?) })
    })
}

/// The artifacts of each task, in their order. Tasks of the same row take turns.
async fn hold(
    connection: &mut PgConnection,
    worker: &str,
    tasks: &[AttachTask],
) -> Result<Vec<Vec<HeldArtifact>>, sqlx::Error> {
    let mut by_task: HashMap<i64, Vec<HeldArtifact>> = HashMap::new();
    let mut left = tasks.to_vec();
    while !left.is_empty() {
        let mut rows = HashSet::new();
        let (now, later) = left.into_iter().partition(|task| rows.insert(task.row));
        left = later;
        let now: Vec<AttachTask> = now;
        for held in attach::hold(&mut *connection, worker, &now, MAX_ARTIFACTS).await? {
            by_task.entry(held.task).or_default().push(held);
        }
    }
    let of = |task: &AttachTask| by_task.remove(&task.id).unwrap_or_default();
    Ok(tasks.iter().map(of).collect())
}

struct Attacher {
    store: Store,
    cases: Arc<dyn CaseApi>,
    breaker: Arc<Breaker>,
    policy: RetryPolicy,
    look_up: bool,
    /// Bounds the concurrent calls of all rows and their files.
    calls: Semaphore,
    artifact_leases: Batcher<AttachTask, Vec<HeldArtifact>>,
    waker: Waker,
    name: String,
    /// Results by task, until they are known to be committed.
    recorded: Mutex<HashMap<i64, Vec<RecordedResult>>>,
}

impl Attacher {
    async fn handle(self: Arc<Self>, item: Item) -> Result<Handled, BoxError> {
        let task = item.read::<TaskPayload>()?.task(item.id);
        // Left over from a settlement that did not happen.
        drop(self.take_recorded(item.id));
        let held = match self.artifact_leases.call(task).await {
            Ok(held) => held,
            Err(error) if error.is_transient() => {
                tracing::warn!(%error, "the database is unavailable; nothing is sent, retrying");
                return Ok(Verdict::Snooze(DATABASE_DELAY).into());
            }
            Err(error) => return Err(error.into()),
        };
        if held.is_empty() {
            return Ok(Verdict::Done.into());
        }
        postrider_crashpoint::point!("evidence.held")?;
        let more = i64::try_from(held.len()).unwrap_or(i64::MAX) >= MAX_ARTIFACTS;
        let attempts = join_all(held.iter().map(|artifact| self.attempt(artifact))).await;
        postrider_crashpoint::point!("evidence.attached")?;
        Ok(task_result(task, attempts, more))
    }

    async fn attempt(&self, held: &HeldArtifact) -> Attempt {
        let _permit = self.calls.acquire().await;
        let started = Instant::now();
        let opened = match files::open(&self.store, held).await {
            Ok(opened) => opened,
            Err((code, message)) => return self.failed(held, code, message, None, started),
        };
        let permit = match self.breaker.permit() {
            Ok(permit) => permit,
            Err(open) => return Attempt::Postponed(held.id, open.retry_after),
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
        permit.report(breaker_outcome(&answer));
        match answer {
            Ok(()) => Attempt::Made(AttemptResult {
                id: held.id,
                failure: None,
                retry_status: if held.attempt_count > 0 {
                    RetryStatus::RetrySuccess
                } else {
                    RetryStatus::Pending
                },
                delay: None,
                duration: started.elapsed().as_secs_f64(),
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
        held: &HeldArtifact,
        code: Code,
        message: String,
        retry_after: Option<Duration>,
        started: Instant,
    ) -> Attempt {
        let result = failed_attempt(&self.policy, held, code, &message, retry_after);
        Attempt::Made(AttemptResult {
            duration: started.elapsed().as_secs_f64(),
            ..result
        })
    }

    async fn record(
        &self,
        tx: &mut PgConnection,
        results: &[Arc<TaskResult>],
    ) -> Result<(), BoxError> {
        let recorded = attach::record(tx, &self.name, results).await;
        let mut by_task: HashMap<i64, Vec<RecordedResult>> = HashMap::new();
        for result in recorded.map_err(into_boxed)? {
            by_task.entry(result.task).or_default().push(result);
        }
        postrider_crashpoint::point!("evidence.recorded")?;
        for (task, recorded) in by_task {
            self.keep_recorded(task, recorded);
        }
        Ok(())
    }

    /// A dead task fails its untried artifacts, so that both notifications become due.
    fn fail_task(self: Arc<Self>, item: &Item, failure: &Failure) -> Option<Effect> {
        let task = item.read::<TaskPayload>().ok()?.task(item.id);
        let reason = failure.to_string();
        Some(Box::new(move |tx| {
            Box::pin(async move {
                let recorded = fail_artifacts(tx, &self.policy, &self.name, task, &reason).await;
                self.keep_recorded(task.id, recorded.map_err(into_boxed)?);
                Ok(())
            })
        }))
    }

    fn keep_recorded(&self, task: i64, results: Vec<RecordedResult>) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.insert(task, results);
    }

    fn take_recorded(&self, task: i64) -> Option<Vec<RecordedResult>> {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.remove(&task)
    }

    /// Counts committed results and wakes the publisher of their events.
    fn publish(&self, task: i64) {
        let Some(results) = self.take_recorded(task) else {
            return;
        };
        for result in &results {
            gauges::attempted(result.attempt_count, result.code.is_none());
            if result.retry_status == RetryStatus::PermanentFailed
                && let Some(code) = &result.code
            {
                gauges::permanent_failure(code, 1);
            }
        }
        self.waker.wake(&OUTBOX);
    }
}

/// The verdict, with the result that is recorded with it.
fn task_result(task: AttachTask, outcomes: Vec<Attempt>, more: bool) -> Handled {
    let (mut attempts, mut postponed) = (Vec::with_capacity(outcomes.len()), Vec::new());
    let mut delay = Duration::ZERO;
    for outcome in outcomes {
        match outcome {
            Attempt::Made(attempt) => attempts.push(attempt),
            Attempt::Postponed(artifact, later) => {
                postponed.push(artifact);
                delay = delay.max(later);
            }
        }
    }
    let verdict = if more || !postponed.is_empty() {
        Verdict::Snooze(delay)
    } else {
        Verdict::Done
    };
    Handled::from(verdict).with_value(TaskResult {
        task,
        attempts,
        postponed,
    })
}

/// A failed attempt: whether the artifact is retried, and when.
fn failed_attempt(
    policy: &RetryPolicy,
    held: &HeldArtifact,
    code: Code,
    message: &str,
    retry_after: Option<Duration>,
) -> AttemptResult {
    let attempts = u32::try_from(held.attempt_count + 1).unwrap_or(u32::MAX);
    let max_retries = u32::try_from(held.max_retries).unwrap_or(0);
    let retry_status = after_failure(code, attempts, max_retries);
    let delay = (retry_status != RetryStatus::PermanentFailed).then(|| {
        // The artifact's own limit decides whether it is retried, the policy only when.
        let backoff = policy.delay(attempts, rand::random()).unwrap_or_default();
        backoff.max(retry_after.unwrap_or_default()).as_secs_f64()
    });
    // Sanitised like every stored failure: no secrets, no control characters, bounded.
    let message = Failure::with_category(code.as_str(), code.category(), message);
    AttemptResult {
        id: held.id,
        failure: Some((code, message.message().to_owned())),
        retry_status,
        delay,
        duration: 0.0,
    }
}

/// Fails the artifacts that the task would have tried.
async fn fail_artifacts(
    tx: &mut PgConnection,
    policy: &RetryPolicy,
    worker: &str,
    task: AttachTask,
    reason: &str,
) -> Result<Vec<RecordedResult>> {
    let held = attach::hold(tx, worker, &[task], i64::MAX).await?;
    let failed =
        |held: &HeldArtifact| failed_attempt(policy, held, Code::SystemError, reason, None);
    let result = TaskResult {
        task,
        attempts: held.iter().map(failed).collect(),
        postponed: Vec::new(),
    };
    attach::record(tx, worker, &[Arc::new(result)]).await
}

/// Fails the artifacts of a row whose first event died before it became a task; returns their number.
pub(crate) async fn fail_row(
    pool: &PgPool,
    policy: &RetryPolicy,
    row: Uuid,
    reason: &str,
) -> Result<usize> {
    let mut tx = pool.begin().await?;
    let Some((id, event)) = schedule::insert_dead_task(&mut tx, row, reason).await? else {
        return Ok(0);
    };
    let task = AttachTask {
        id,
        row,
        event,
        is_retry: false,
    };
    let recorded = fail_artifacts(&mut tx, policy, "scheduler", task, reason).await?;
    tx.commit().await?;
    Ok(recorded.len())
}

/// Whether an earlier call's outcome is unknown.
fn may_have_arrived(held: &HeldArtifact) -> bool {
    let uncertain = |code: &str| {
        matches!(
            code,
            "ATTACHMENT_API_TIMEOUT" | "NETWORK_TIMEOUT" | "500" | "503"
        )
    };
    held.lost || held.last_code.as_deref().is_some_and(uncertain)
}

fn breaker_outcome(answer: &Result<(), Refusal>) -> breaker::Outcome {
    match answer {
        Ok(()) => breaker::Outcome::Answered,
        Err(refusal) => refusal.shows,
    }
}

/// The engine recognises outages by the error's type.
fn into_boxed(error: Error) -> BoxError {
    match error {
        Error::Database(error) => Box::new(error),
        other => Box::new(other),
    }
}
