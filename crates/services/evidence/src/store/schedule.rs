//! Selects the rows to retry and enqueues their events.

use std::time::Duration;

use postrider::{Error, failure::Failure, lease::Operator, outbox};
use postrider_blob::Store;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::events::{AttachEvent, AttachType, EventArtifact, RETRIES, SCHEMA_VERSION};

/// Rows with a retryable artifact that is due, the longest due first. Scheduled artifacts are left alone, unless their
/// event was evidently lost: for long, no task has worked on the row and no event has waited in the outbox.
///
/// Locks the rows, so that two schedulers take different ones. Index: idx_artifact_retry_scan.
const DUE_ROWS: &str = "
select r.id, r.file_job_id, r.case_id, r.retry_round
from (select a.file_job_row_id, min(a.next_retry_at) as since
      from evidence.file_job_artifact a
      where a.is_retryable and a.next_retry_at <= clock_timestamp()
        and ($1::uuid is null or a.file_job_id = $1)
        and (a.retry_status in ('PENDING', 'RETRY_FAILED') or a.scheduled_at < clock_timestamp() - make_interval(secs => $3))
      group by a.file_job_row_id) d
join evidence.file_job_row r on r.id = d.file_job_row_id
join evidence.file_job j on j.id = r.file_job_id
where r.evidence_status in ('PARTIALLY_FAILED', 'FAILED') and j.closed_at is null
  and not exists (select from evidence.attach_task t where t.file_job_row_id = r.id and t.finished_at is null)
  and not exists (select from postrider.outbox o
                  where o.topic = 'evidence.failed.requests' and o.dedupe_key = r.id || ':' || r.retry_round
                    and o.finished_at is null)
order by d.since limit $2
for update of r skip locked";

/// Locks the artifacts and checks again: the row may have been selected before another scheduler's commit.
const MARK: &str = "
with chosen as (
    select a.id from evidence.file_job_artifact a
    where a.file_job_row_id = any($1) and a.is_retryable and a.next_retry_at <= clock_timestamp()
      and (a.retry_status in ('PENDING', 'RETRY_FAILED') or a.scheduled_at < clock_timestamp() - make_interval(secs => $2))
    order by a.id
    for update skip locked
)
update evidence.file_job_artifact a
set retry_status = 'RETRY_SCHEDULED', scheduled_at = clock_timestamp(), updated_at = clock_timestamp()
from chosen c where a.id = c.id
returning a.file_job_row_id";

const NEXT_ROUND: &str = "
update evidence.file_job_row set retry_round = retry_round + 1, updated_at = clock_timestamp()
where id = any($1) returning id, retry_round";

const ALL_ARTIFACTS: &str = "
select file_job_row_id, id, s3_key from evidence.file_job_artifact
where file_job_row_id = any($1) order by file_job_row_id, artifact_number";

/// Ends the backoff of a job's artifacts.
const MAKE_DUE: &str = "
update evidence.file_job_artifact
set next_retry_at = clock_timestamp(), updated_at = clock_timestamp()
where file_job_id = $1 and is_retryable and next_retry_at > clock_timestamp()
  and retry_status in ('PENDING', 'RETRY_FAILED')";

/// The audit identifies items by number; artifacts have none, so the reason names the job.
const AUDIT: &str = "
insert into postrider.audit (actor, action, work_table, items, reason)
values ($1, 'retry_early', 'evidence.file_job_artifact', '{}', $2)";

const WAITING: &str = "
select count(*), min(next_retry_at) from evidence.file_job_artifact
where file_job_id = $1 and is_retryable and retry_status in ('PENDING', 'RETRY_FAILED')";

/// Rows whose first event is dead, in the outbox or as a delivery.
const DEAD_EVENTS: &str = "
select distinct u.row_id
from (select (o.payload ->> 'file_job_row_id')::uuid as row_id
      from postrider.outbox o
      where o.finished_at is not null and o.state = 'dead' and o.topic = 'evidence.attach.requests'
      union all
      select (m.payload ->> 'file_job_row_id')::uuid
      from postrider.delivery d
      join postrider.message m on m.id = d.message_id and m.segment = d.segment
      where d.finished_at is not null and d.state = 'dead' and d.consumer_group = 'evidence.attach'
        and d.topic = 'evidence.attach.requests') u
where exists (select from evidence.file_job_artifact a where a.file_job_row_id = u.row_id and a.attempt_count = 0)
  and not exists (select from evidence.attach_task t where t.file_job_row_id = u.row_id and t.finished_at is null)
limit 100";

/// A dead task; its artifacts fail in the same transaction.
const INSERT_DEAD_TASK: &str = "
insert into evidence.attach_task (event_id, file_job_id, file_job_row_id, is_retry, state, attempts, finished_at,
                                  error_code, error_category, error_message, cause)
select gen_random_uuid(), r.file_job_id, r.id, false, 'dead', 1, clock_timestamp(), 'SYSTEM_ERROR', 'SYSTEM', $2, $3
from evidence.file_job_row r where r.id = $1
returning id, event_id";

/// Whether a worker's breaker is open.
const BREAKER_IS_OPEN: &str = "
select exists (select from postrider.breaker
               where dependency = $1 and state = 'open' and open_until > clock_timestamp())";

/// What was scheduled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Scheduled {
    pub rows: usize,
    pub artifacts: usize,
}

#[derive(sqlx::FromRow)]
struct DueRow {
    id: Uuid,
    file_job_id: Uuid,
    case_id: Uuid,
}

/// Marks due artifacts and enqueues one event per row, for up to `limit` rows of one job or of all.
pub(crate) async fn schedule(
    pool: &PgPool,
    files: &Store,
    job: Option<Uuid>,
    limit: u32,
    stale_after: Duration,
    reason: &str,
) -> Result<Scheduled, Error> {
    let mut tx = pool.begin().await?;
    let rows: Vec<DueRow> = sqlx::query_as(DUE_ROWS)
        .bind(job)
        .bind(i64::from(limit))
        .bind(stale_after.as_secs_f64())
        .fetch_all(&mut *tx)
        .await?;
    if rows.is_empty() {
        return Ok(Scheduled::default());
    }
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let marked: Vec<Uuid> = sqlx::query_scalar(MARK)
        .bind(&ids)
        .bind(stale_after.as_secs_f64())
        .fetch_all(&mut *tx)
        .await?;
    let mut ids = marked.clone();
    ids.sort_unstable();
    ids.dedup();
    postrider_crashpoint::point!("evidence.scheduler_marked")?;
    enqueue(&mut tx, files, &rows, &ids, reason).await?;
    postrider_crashpoint::point!("evidence.scheduler_before_commit")?;
    tx.commit().await?;
    Ok(Scheduled {
        rows: ids.len(),
        artifacts: marked.len(),
    })
}

async fn enqueue(
    tx: &mut PgConnection,
    files: &Store,
    rows: &[DueRow],
    marked: &[Uuid],
    reason: &str,
) -> Result<(), Error> {
    let rounds: Vec<(Uuid, i32)> = sqlx::query_as(NEXT_ROUND)
        .bind(marked)
        .fetch_all(&mut *tx)
        .await?;
    let artifacts: Vec<(Uuid, Uuid, String)> = sqlx::query_as(ALL_ARTIFACTS)
        .bind(marked)
        .fetch_all(&mut *tx)
        .await?;
    let now = OffsetDateTime::now_utc();
    let mut messages = Vec::with_capacity(rounds.len());
    for (id, round) in rounds {
        let Some(row) = rows.iter().find(|row| row.id == id) else {
            continue;
        };
        let from = artifacts.partition_point(|(row, ..)| *row < id);
        let of_row = artifacts[from..].iter().take_while(|(row, ..)| *row == id);
        let event = AttachEvent {
            event_id: Uuid::now_v7(),
            event_type: AttachType::Retry,
            occurred_at: now,
            file_job_id: row.file_job_id,
            file_job_row_id: id,
            case_id: row.case_id,
            artifacts: of_row
                .map(|(_, artifact_id, key)| EventArtifact {
                    artifact_id: *artifact_id,
                    s3_key: files.url(&crate::files::key(key)),
                })
                .collect(),
            retry_reason: Some(reason.to_owned()),
            schema_version: SCHEMA_VERSION,
        };
        messages.push(outbox::Message::new(RETRIES, &event)?.dedupe_key(format!("{id}:{round}"))?);
    }
    outbox::enqueue_many(tx, &messages).await?;
    Ok(())
}

/// Makes the job's waiting artifacts due now; audited.
pub(crate) async fn make_due(
    pool: &PgPool,
    job: Uuid,
    operator: &Operator,
) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin().await?;
    let done = sqlx::query(MAKE_DUE).bind(job).execute(&mut *tx).await?;
    if done.rows_affected() == 0 {
        return Ok(());
    }
    sqlx::query(AUDIT)
        .bind(&operator.name)
        .bind(format!(
            "file job {job}: {} retries made due",
            done.rows_affected()
        ))
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// The number of a job's artifacts that wait for a retry, and when the next one is due.
pub(crate) async fn waiting(
    pool: &PgPool,
    job: Uuid,
) -> Result<(i64, Option<OffsetDateTime>), sqlx::Error> {
    sqlx::query_as(WAITING).bind(job).fetch_one(pool).await
}

/// Rows whose first event is dead.
pub(crate) async fn rows_of_dead_events(pool: &PgPool) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(DEAD_EVENTS).fetch_all(pool).await
}

/// Inserts a dead task for such a row; returns its id and event.
pub(crate) async fn insert_dead_task(
    tx: &mut PgConnection,
    row: Uuid,
    reason: &str,
) -> Result<Option<(i64, Uuid)>, sqlx::Error> {
    sqlx::query_as(INSERT_DEAD_TASK)
        .bind(row)
        .bind(reason)
        .bind(Failure::new("SYSTEM_ERROR", reason).signature())
        .fetch_optional(tx)
        .await
}

pub(crate) async fn breaker_is_open(pool: &PgPool, dependency: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(BREAKER_IS_OPEN)
        .bind(dependency)
        .fetch_one(pool)
        .await
}
