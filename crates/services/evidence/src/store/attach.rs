//! Attach tasks: created from events, their artifacts held, results recorded.
//!
//! Array parameters go through a sub-select everywhere: a planner that sees their length would read all artifacts of all
//! jobs instead.

use postrider::{Error, outbox};
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    events::{AttachEvent, AttachType, RESULTS, ResultEvent, SCHEMA_VERSION},
    model::{Code, RetryStatus},
};

/// The join drops events whose row doesn't exist.
const CREATE_TASKS: &str = "
insert into evidence.attach_task (event_id, file_job_id, file_job_row_id, is_retry)
select u.event_id, r.file_job_id, r.id, u.is_retry
from unnest((select $1::uuid[]), (select $2::uuid[]), (select $3::boolean[]))
         with ordinality u(event_id, row_id, is_retry, place)
join evidence.file_job_row r on r.id = u.row_id
order by u.place";

/// Selects and leases the artifacts of many tasks of different rows. A first event takes artifacts that were never tried,
/// a retry those that are retryable and due. Nothing is taken that a live task holds or that belongs to a closed job. If
/// this task or a dead one held an artifact before, it may have been sent without a record: the attempt log gets a LOST
/// entry. Rows aren't locked for the check: if one has changed by the time it is updated, it is left alone. Whether the job
/// is open is a sub-select, here and below: with a join, a server without statistics starts with the open jobs and reads
/// all their artifacts.
const HOLD: &str = "
with mine as materialized (
    select u.task, u.event_id, a.*
    from (select * from unnest((select $1::bigint[]), (select $2::uuid[]), (select $3::uuid[]), (select $4::boolean[]))
              u(task, row_id, event_id, is_retry) order by u.row_id) u
    cross join lateral (
        select a.id, a.held_by, a.attempt_count, a.is_retryable, a.updated_at
        from evidence.file_job_artifact a
        where a.file_job_row_id = u.row_id
          and case when u.is_retry then a.is_retryable and a.next_retry_at <= clock_timestamp() else a.attempt_count = 0 end
          and (a.held_by is null or a.held_by = u.task or not exists (
                  select from evidence.attach_task t
                  where t.id = a.held_by and t.finished_at is null and t.lease_until > clock_timestamp()))
          and (select j.closed_at from evidence.file_job j where j.id = a.file_job_id) is null
        order by a.artifact_number limit $5) a
), held as (
    update evidence.file_job_artifact a
    set held_by = m.task, updated_at = clock_timestamp(),
        retry_status = case when a.attempt_count > 0 then 'RETRYING' else a.retry_status end,
        last_retry_at = case when a.attempt_count > 0 then clock_timestamp() else a.last_retry_at end
    from mine m
    where a.id = m.id and a.held_by is not distinct from m.held_by
      and a.attempt_count = m.attempt_count and a.is_retryable = m.is_retryable
    returning m.task, a.id, a.artifact_number, a.case_id, a.file_name, a.file_type, a.file_size_bytes, a.sha256, a.s3_key,
              a.attempt_count, a.max_retries, a.attachment_error_code as last_code, m.held_by is not null as lost,
              m.event_id, m.updated_at as held_since
), logged as (
    insert into evidence.attach_attempt (artifact_id, attempt, outcome, event_id, worker, started_at)
    select h.id, h.attempt_count + 1, 'LOST', h.event_id, $6, h.held_since from held h where h.lost
)
select task, id, case_id, file_name, file_type, file_size_bytes, sha256, s3_key, attempt_count, max_retries, last_code, lost
from held order by task, artifact_number";

/// Only artifacts that their task still holds, and only while the job is open. Locks the rows first: their roll-up follows.
const RECORD: &str = "
with locked as materialized (
    select r.id from evidence.file_job_row r where r.id = any((select $1::uuid[])::uuid[]) order by r.id for update
), written as (
    update evidence.file_job_artifact a
    set attachment_status = case when u.code is null then 'ATTACHED' else 'FAILED' end,
        attachment_error_code = u.code,
        attachment_error_message = u.message,
        attached_at = case when u.code is null then clock_timestamp() end,
        attempt_count = a.attempt_count + 1,
        retry_count = a.attempt_count,
        retry_status = u.retry_status,
        next_retry_at = clock_timestamp() + make_interval(secs => u.wait),
        held_by = null,
        updated_at = clock_timestamp()
    from unnest((select $2::bigint[]), (select $3::uuid[]), (select $4::uuid[]), (select $5::text[]), (select $6::text[]),
                (select $7::text[]), (select $8::float8[]), (select $9::float8[]))
             u(task, event_id, id, code, message, retry_status, wait, took)
    where (select count(*) from locked) > 0 and a.id = u.id and a.held_by = u.task
      and (select j.closed_at from evidence.file_job j where j.id = a.file_job_id) is null
    returning u.task, u.event_id, a.id, a.file_job_id, a.file_job_row_id, a.case_id, a.attempt_count,
              a.attachment_error_code, a.attachment_error_message, a.retry_status, u.took
), logged as (
    insert into evidence.attach_attempt
        (artifact_id, attempt, outcome, error_code, error_message, event_id, worker, started_at)
    select w.id, w.attempt_count, case when w.attachment_error_code is null then 'ATTACHED' else 'FAILED' end,
           w.attachment_error_code, w.attachment_error_message, w.event_id, $10,
           clock_timestamp() - make_interval(secs => w.took)
    from written w
)
select task, id, file_job_id, file_job_row_id, case_id, attempt_count, attachment_error_code as code, retry_status::text
from written";

/// Derives a row's state from its artifacts.
const ROLL_UP: &str = "
update evidence.file_job_row r
set evidence_attached_count = c.attached,
    evidence_failed_count = c.failed,
    evidence_status = case when c.attached + c.failed < r.evidence_count then 'PENDING'
                           when c.attached = r.evidence_count then 'COMPLETED'
                           when c.failed = r.evidence_count then 'FAILED'
                           else 'PARTIALLY_FAILED' end,
    evidence_failed_files = c.files,
    evidence_completed_at = case when c.attached = r.evidence_count
                                 then coalesce(r.evidence_completed_at, clock_timestamp()) end,
    updated_at = clock_timestamp()
from unnest((select $1::uuid[])) u(id)
cross join lateral (
    select count(*) filter (where a.attachment_status = 'ATTACHED') as attached,
           count(*) filter (where a.attachment_status = 'FAILED') as failed,
           jsonb_agg(jsonb_build_object('artifactId', a.id, 'fileName', a.file_name,
                                        'errorCode', a.attachment_error_code, 'errorCategory', a.error_category,
                                        'retryable', a.is_retryable) order by a.artifact_number)
               filter (where a.attachment_status = 'FAILED') as files
    from evidence.file_job_artifact a where a.file_job_row_id = u.id) c
where r.id = u.id";

/// Releases artifacts that were not sent after all.
const RELEASE: &str = "
update evidence.file_job_artifact a
set held_by = null, retry_status = case when a.retry_status = 'RETRYING' then 'RETRY_SCHEDULED' else a.retry_status end
from unnest((select $1::bigint[]), (select $2::uuid[])) u(task, id)
where a.id = u.id and a.held_by = u.task";

/// An artifact leased to a task.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct HeldArtifact {
    /// The id of the task that holds it.
    pub task: i64,
    pub id: Uuid,
    pub case_id: Uuid,
    pub file_name: String,
    pub file_type: Option<String>,
    pub file_size_bytes: Option<i64>,
    pub sha256: Option<String>,
    pub s3_key: String,
    pub attempt_count: i32,
    pub max_retries: i32,
    pub last_code: Option<String>,
    /// An earlier call may have arrived and was never recorded.
    pub lost: bool,
}

/// A claimed attach task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttachTask {
    pub id: i64,
    pub row: Uuid,
    pub event: Uuid,
    pub is_retry: bool,
}

/// The result of a task, recorded with its settlement.
#[derive(Debug)]
pub(crate) struct TaskResult {
    pub task: AttachTask,
    pub attempts: Vec<AttemptResult>,
    /// Artifacts that were not sent after all.
    pub postponed: Vec<Uuid>,
}

/// The result of one attempt at an artifact.
#[derive(Debug, Clone)]
pub(crate) struct AttemptResult {
    pub id: Uuid,
    /// `None` if the artifact is attached.
    pub failure: Option<(Code, String)>,
    pub retry_status: RetryStatus,
    /// Until the next retry, in seconds.
    pub delay: Option<f64>,
    /// How long it took, in seconds.
    pub duration: f64,
}

/// A result as it was written.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct RecordedResult {
    pub task: i64,
    pub id: Uuid,
    pub file_job_id: Uuid,
    pub file_job_row_id: Uuid,
    pub case_id: Uuid,
    pub attempt_count: i32,
    pub code: Option<String>,
    pub retry_status: RetryStatus,
}

/// Creates a task per event.
pub(crate) async fn create_tasks(
    tx: &mut PgConnection,
    events: &[AttachEvent],
) -> Result<(), sqlx::Error> {
    sqlx::query(CREATE_TASKS)
        .bind(
            events
                .iter()
                .map(|event| event.event_id)
                .collect::<Vec<_>>(),
        )
        .bind(
            events
                .iter()
                .map(|event| event.file_job_row_id)
                .collect::<Vec<_>>(),
        )
        .bind(
            events
                .iter()
                .map(|event| event.event_type == AttachType::Retry)
                .collect::<Vec<_>>(),
        )
        .execute(tx)
        .await
        .map(drop)
}

/// Holds the artifacts that each task may try, at most `limit` per row. The tasks must be of different rows.
pub(crate) async fn hold(
    connection: &mut PgConnection,
    worker: &str,
    tasks: &[AttachTask],
    limit: i64,
) -> Result<Vec<HeldArtifact>, sqlx::Error> {
    sqlx::query_as(HOLD)
        .bind(tasks.iter().map(|task| task.id).collect::<Vec<_>>())
        .bind(tasks.iter().map(|task| task.row).collect::<Vec<_>>())
        .bind(tasks.iter().map(|task| task.event).collect::<Vec<_>>())
        .bind(tasks.iter().map(|task| task.is_retry).collect::<Vec<_>>())
        .bind(limit)
        .bind(worker)
        .fetch_all(connection)
        .await
}

/// Writes results in the caller's transaction: artifacts, attempts, rows and result events.
pub(crate) async fn record(
    tx: &mut PgConnection,
    worker: &str,
    results: &[impl AsRef<TaskResult>],
) -> Result<Vec<RecordedResult>, Error> {
    let results = || results.iter().map(AsRef::as_ref);
    release(tx, results()).await?;
    let attempts: Vec<(&AttachTask, &AttemptResult)> = results()
        .flat_map(|result| {
            let attempts = result.attempts.iter();
            attempts.map(|attempt| (&result.task, attempt))
        })
        .collect();
    if attempts.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Uuid> = results().map(|result| result.task.row).collect();
    let part = |of: fn(&(Code, String)) -> &str| -> Vec<Option<&str>> {
        let failures = attempts.iter().map(|(_, attempt)| attempt.failure.as_ref());
        failures.map(|failure| failure.map(of)).collect()
    };
    let recorded: Vec<RecordedResult> = sqlx::query_as(RECORD)
        .bind(&rows)
        .bind(attempts.iter().map(|(task, _)| task.id).collect::<Vec<_>>())
        .bind(
            attempts
                .iter()
                .map(|(task, _)| task.event)
                .collect::<Vec<_>>(),
        )
        .bind(attempts.iter().map(|(_, a)| a.id).collect::<Vec<_>>())
        .bind(part(|failure| failure.0.as_str()))
        .bind(part(|failure| failure.1.as_str()))
        .bind(
            attempts
                .iter()
                .map(|(_, a)| a.retry_status.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(attempts.iter().map(|(_, a)| a.delay).collect::<Vec<_>>())
        .bind(attempts.iter().map(|(_, a)| a.duration).collect::<Vec<_>>())
        .bind(worker)
        .fetch_all(&mut *tx)
        .await?;
    sqlx::query(ROLL_UP).bind(&rows).execute(&mut *tx).await?;
    let now = OffsetDateTime::now_utc();
    let messages = recorded
        .iter()
        .map(|result| outbox::Message::new(RESULTS, &result_event(now, result)))
        .collect::<Result<Vec<_>, _>>()?;
    outbox::enqueue_many(tx, &messages).await?;
    Ok(recorded)
}

async fn release<'a>(
    connection: &mut PgConnection,
    results: impl Iterator<Item = &'a TaskResult>,
) -> Result<(), sqlx::Error> {
    let (tasks, artifacts): (Vec<i64>, Vec<Uuid>) = results
        .flat_map(|result| result.postponed.iter().map(|id| (result.task.id, *id)))
        .unzip();
    if tasks.is_empty() {
        return Ok(());
    }
    sqlx::query(RELEASE)
        .bind(tasks)
        .bind(artifacts)
        .execute(connection)
        .await
        .map(drop)
}

fn result_event(now: OffsetDateTime, result: &RecordedResult) -> ResultEvent {
    ResultEvent {
        event_id: Uuid::now_v7(),
        event_type: "EVIDENCE_ARTIFACT_RESULT".to_owned(),
        occurred_at: now,
        file_job_id: result.file_job_id,
        file_job_row_id: result.file_job_row_id,
        case_id: result.case_id,
        artifact_id: result.id,
        status: if result.code.is_none() {
            "ATTACHED"
        } else {
            "FAILED"
        }
        .to_owned(),
        error_code: result.code.clone(),
        attempt_count: result.attempt_count,
        schema_version: SCHEMA_VERSION,
    }
}
