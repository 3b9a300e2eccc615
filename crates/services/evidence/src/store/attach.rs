//! From an event to its artifacts' results.
//!
//! Array parameters go through a sub-select in all of these: a planner that sees how long they are would rather read all
//! artifacts of all jobs.

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

/// The gate, and the artifact's lease in one, for many tasks of different rows. A first event takes what was never
/// tried, a retry what is retryable and due; nobody takes what a living task holds, or what belongs to a closed job. What
/// this task or a dead one held before was perhaps sent by somebody who never recorded it: that call is a loss, and the
/// journal says so. Nothing is locked to be looked at: what has changed by the time it is written is left to whoever
/// changed it. Whether the job is open is a sub-select of its own, here and below: as a join, a server without statistics
/// begins with the open jobs and reads all their artifacts.
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
), journal as (
    insert into evidence.attach_attempt (artifact_id, attempt, outcome, event_id, worker, started_at)
    select h.id, h.attempt_count + 1, 'LOST', h.event_id, $6, h.held_since from held h where h.lost
)
select task, id, case_id, file_name, file_type, file_size_bytes, sha256, s3_key, attempt_count, max_retries, last_code, lost
from held order by task, artifact_number";

/// Only what its task still holds, and only while the job is open. The rows are locked first: their roll-up follows.
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
), journal as (
    insert into evidence.attach_attempt
        (artifact_id, attempt, outcome, error_code, error_message, event_id, worker, started_at)
    select w.id, w.attempt_count, case when w.attachment_error_code is null then 'ATTACHED' else 'FAILED' end,
           w.attachment_error_code, w.attachment_error_message, w.event_id, $10,
           clock_timestamp() - make_interval(secs => w.took)
    from written w
)
select task, id, file_job_id, file_job_row_id, case_id, attempt_count, attachment_error_code as code, retry_status::text
from written";

/// A row is what its artifacts are.
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

/// Not called after all: whoever comes next finds them as they were.
const RELEASE: &str = "
update evidence.file_job_artifact a
set held_by = null, retry_status = case when a.retry_status = 'RETRYING' then 'RETRY_SCHEDULED' else a.retry_status end
from unnest((select $1::bigint[]), (select $2::uuid[])) u(task, id)
where a.id = u.id and a.held_by = u.task";

/// An artifact that may be attached now.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Held {
    /// Who holds it.
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

/// Who holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    pub task: i64,
    pub row: Uuid,
    pub event: Uuid,
    pub is_retry: bool,
}

/// What came of a task, to be written with its settling.
#[derive(Debug)]
pub(crate) struct Conclusion {
    pub holder: Holder,
    pub told: Vec<Told>,
    /// Not called after all.
    pub put_off: Vec<Uuid>,
}

/// What came of one artifact's attempt.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub id: Uuid,
    /// None: attached.
    pub failure: Option<(Code, String)>,
    pub retry_status: RetryStatus,
    /// Until the next retry, in seconds.
    pub wait: Option<f64>,
    /// How long it took, in seconds.
    pub took: f64,
}

/// What was really written.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Written {
    pub task: i64,
    pub id: Uuid,
    pub file_job_id: Uuid,
    pub file_job_row_id: Uuid,
    pub case_id: Uuid,
    pub attempt_count: i32,
    pub code: Option<String>,
    pub retry_status: RetryStatus,
}

/// One task per event.
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

/// Holds what each may try, at most so many artifacts of a row. Two holders of one row would get the same: there is at
/// most one of each.
pub(crate) async fn hold(
    connection: &mut PgConnection,
    worker: &str,
    holders: &[Holder],
    most: i64,
) -> Result<Vec<Held>, sqlx::Error> {
    sqlx::query_as(HOLD)
        .bind(holders.iter().map(|h| h.task).collect::<Vec<_>>())
        .bind(holders.iter().map(|h| h.row).collect::<Vec<_>>())
        .bind(holders.iter().map(|h| h.event).collect::<Vec<_>>())
        .bind(holders.iter().map(|h| h.is_retry).collect::<Vec<_>>())
        .bind(most)
        .bind(worker)
        .fetch_all(connection)
        .await
}

/// Artifacts, journal, rows and result events: all writes of these results in the caller's transaction.
pub(crate) async fn record(
    tx: &mut PgConnection,
    worker: &str,
    conclusions: &[impl AsRef<Conclusion>],
) -> Result<Vec<Written>, Error> {
    let conclusions = || conclusions.iter().map(AsRef::as_ref);
    release(tx, conclusions()).await?;
    let told: Vec<(&Holder, &Told)> = conclusions()
        .flat_map(|c| c.told.iter().map(|told| (&c.holder, told)))
        .collect();
    if told.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<Uuid> = conclusions().map(|c| c.holder.row).collect();
    let part = |of: fn(&(Code, String)) -> &str| -> Vec<Option<&str>> {
        let failures = told.iter().map(|(_, told)| told.failure.as_ref());
        failures.map(|failure| failure.map(of)).collect()
    };
    let written: Vec<Written> = sqlx::query_as(RECORD)
        .bind(&rows)
        .bind(told.iter().map(|(h, _)| h.task).collect::<Vec<_>>())
        .bind(told.iter().map(|(h, _)| h.event).collect::<Vec<_>>())
        .bind(told.iter().map(|(_, t)| t.id).collect::<Vec<_>>())
        .bind(part(|failure| failure.0.as_str()))
        .bind(part(|failure| failure.1.as_str()))
        .bind(
            told.iter()
                .map(|(_, t)| t.retry_status.as_str())
                .collect::<Vec<_>>(),
        )
        .bind(told.iter().map(|(_, t)| t.wait).collect::<Vec<_>>())
        .bind(told.iter().map(|(_, t)| t.took).collect::<Vec<_>>())
        .bind(worker)
        .fetch_all(&mut *tx)
        .await?;
    sqlx::query(ROLL_UP).bind(&rows).execute(&mut *tx).await?;
    let now = OffsetDateTime::now_utc();
    let messages = written
        .iter()
        .map(|result| outbox::Message::new(RESULTS, &result_event(now, result)))
        .collect::<Result<Vec<_>, _>>()?;
    outbox::enqueue_many(tx, &messages).await?;
    Ok(written)
}

async fn release<'a>(
    connection: &mut PgConnection,
    conclusions: impl Iterator<Item = &'a Conclusion>,
) -> Result<(), sqlx::Error> {
    let (tasks, artifacts): (Vec<i64>, Vec<Uuid>) = conclusions
        .flat_map(|c| c.put_off.iter().map(|id| (c.holder.task, *id)))
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

fn result_event(now: OffsetDateTime, result: &Written) -> ResultEvent {
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
