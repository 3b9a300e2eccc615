//! When N1 and N2 are due, and their content.

use std::time::Duration;

use postrider::{Error, outbox};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::events::{NOTIFICATIONS, NotificationEvent};

/// Maximum number of artifacts listed in N2; the counts are always complete.
const MAX_LISTED: i64 = 10_000;

/// Jobs whose N1 or N2 may be due: a cheap check, two partial indexes per job.
/// Indexes: idx_row_pending, idx_artifact_unsettled.
const CANDIDATES: &str = "
select j.id from evidence.file_job j
where j.closed_at is null and j.id = any($1)
  and case when j.n1_sent_at is null
           then not exists (select from evidence.file_job_row r where r.file_job_id = j.id and r.evidence_status = 'PENDING')
           else not exists (select from evidence.file_job_artifact a where a.file_job_id = j.id and a.is_retryable) end";

/// The same for all open jobs, and those whose N2 is to be forced. Index: file_job_open.
const OVERDUE: &str = "
select j.id, coalesce(j.n1_sent_at <= clock_timestamp() - make_interval(secs => $1), false) as forced
from evidence.file_job j
where j.closed_at is null
  and (j.n1_sent_at <= clock_timestamp() - make_interval(secs => $1)
       or case when j.n1_sent_at is null
               then not exists (select from evidence.file_job_row r where r.file_job_id = j.id and r.evidence_status = 'PENDING')
               else not exists (select from evidence.file_job_artifact a where a.file_job_id = j.id and a.is_retryable) end)
order by j.id limit $2";

const LOCK: &str = "
select n1_sent_at is not null as n1_sent, closed_at is not null as closed,
       extract(epoch from clock_timestamp() - n1_sent_at)::float8 as since_n1,
       coalesce(n1_sent_at <= clock_timestamp() - make_interval(secs => $2), false) as overdue
from evidence.file_job where id = $1 for update";

const COUNT: &str = "
select count(*) as total,
       count(*) filter (where attempt_count = 0) as untried,
       count(*) filter (where attachment_status = 'ATTACHED') as attached,
       count(*) filter (where attachment_status = 'FAILED') as failed,
       count(*) filter (where is_retryable) as retryable,
       count(*) filter (where attachment_status = 'ATTACHED' and retry_count > 0) as recovered,
       count(*) filter (where retry_count > 0) as retried
from evidence.file_job_artifact where file_job_id = $1";

const ERRORS: &str = "
select coalesce(jsonb_object_agg(e.code, e.many), '{}')
from (select attachment_error_code as code, count(*) as many from evidence.file_job_artifact
      where file_job_id = $1 and attachment_error_code is not null group by 1) e";

const CANNOT_RETRY: &str = "
select coalesce(jsonb_agg(jsonb_build_object(
           'artifact_id', a.id, 'file_name', a.file_name, 'case_id', a.case_id,
           'error_code', a.attachment_error_code, 'error_category', a.error_category)
       order by a.row_number, a.artifact_number), '[]')
from (select a.*, r.row_number from evidence.file_job_artifact a
      join evidence.file_job_row r on r.id = a.file_job_row_id
      where a.file_job_id = $1 and a.attachment_status = 'FAILED' and not a.is_retryable
      order by r.row_number, a.artifact_number limit $2) a";

/// Revokes every unsettled artifact from its worker: the result of a call in flight is not recorded.
const REVOKE_UNSETTLED: &str = "
update evidence.file_job_artifact
set held_by = null, updated_at = clock_timestamp(),
    retry_status = case when $2 then 'PERMANENT_FAILED' else retry_status end,
    next_retry_at = case when $2 then null else next_retry_at end
where file_job_id = $1 and is_retryable
returning attachment_error_code";

const SET_N1: &str = "update evidence.file_job set n1_sent_at = clock_timestamp() where id = $1";

const SET_N2: &str = "
update evidence.file_job
set n2_sent_at = clock_timestamp(), closed_at = clock_timestamp(), n2_forced = $2 where id = $1";

const CLOSE: &str = "update evidence.file_job set closed_at = clock_timestamp() where id = $1";

const INSERT_NOTIFICATION: &str =
    "insert into evidence.notification (id, file_job_id, kind, body) values ($1, $2, $3, $4)";

const NOTIFICATION: &str = "
select file_job_id, kind, body, delivered_at is not null as delivered from evidence.notification where id = $1";

const MARK_DELIVERED: &str = "
update evidence.notification set delivered_at = clock_timestamp() where id = $1 and delivered_at is null";

/// The state of a locked job.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct JobState {
    pub n1_sent: bool,
    pub closed: bool,
    pub since_n1: Option<f64>,
    pub overdue: bool,
}

/// Counts of a job's artifacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Counts {
    pub total: i64,
    pub untried: i64,
    pub attached: i64,
    pub failed: i64,
    pub retryable: i64,
    pub recovered: i64,
    pub retried: i64,
}

/// A notification to deliver.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Notification {
    pub file_job_id: Uuid,
    pub kind: String,
    pub body: Value,
    pub delivered: bool,
}

pub(crate) async fn candidates(pool: &PgPool, jobs: &[Uuid]) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(CANDIDATES)
        .bind(jobs)
        .fetch_all(pool)
        .await
}

/// Open jobs whose N1 or N2 is due, each with whether N2 is to be forced.
pub(crate) async fn overdue(
    pool: &PgPool,
    force_after: Duration,
    limit: i64,
) -> Result<Vec<(Uuid, bool)>, sqlx::Error> {
    sqlx::query_as(OVERDUE)
        .bind(force_after.as_secs_f64())
        .bind(limit)
        .fetch_all(pool)
        .await
}

pub(crate) async fn lock(
    tx: &mut PgConnection,
    job: Uuid,
    force_after: Duration,
) -> Result<Option<JobState>, sqlx::Error> {
    sqlx::query_as(LOCK)
        .bind(job)
        .bind(force_after.as_secs_f64())
        .fetch_optional(tx)
        .await
}

pub(crate) async fn count(tx: &mut PgConnection, job: Uuid) -> Result<Counts, sqlx::Error> {
    sqlx::query_as(COUNT).bind(job).fetch_one(tx).await
}

pub(crate) async fn errors(tx: &mut PgConnection, job: Uuid) -> Result<Value, sqlx::Error> {
    sqlx::query_scalar(ERRORS).bind(job).fetch_one(tx).await
}

pub(crate) async fn cannot_retry(tx: &mut PgConnection, job: Uuid) -> Result<Value, sqlx::Error> {
    sqlx::query_scalar(CANNOT_RETRY)
        .bind(job)
        .bind(MAX_LISTED)
        .fetch_one(tx)
        .await
}

/// Returns the error codes of the unsettled artifacts.
pub(crate) async fn revoke_unsettled(
    tx: &mut PgConnection,
    job: Uuid,
    permanent: bool,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(REVOKE_UNSETTLED)
        .bind(job)
        .bind(permanent)
        .fetch_all(tx)
        .await
}

pub(crate) async fn close(tx: &mut PgConnection, job: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query(CLOSE).bind(job).execute(tx).await.map(drop)
}

/// Sets the marker and inserts the notification and its message. Notifications of a job are delivered in order.
pub(crate) async fn insert_notification(
    tx: &mut PgConnection,
    job: Uuid,
    kind: &'static str,
    forced: bool,
    body: &Value,
) -> Result<(), Error> {
    let mark = match kind {
        "evidence.n1" => sqlx::query(SET_N1).bind(job),
        _ => sqlx::query(SET_N2).bind(job).bind(forced),
    };
    mark.execute(&mut *tx).await?;
    let id = Uuid::now_v7();
    sqlx::query(INSERT_NOTIFICATION)
        .bind(id)
        .bind(job)
        .bind(kind)
        .bind(body)
        .execute(&mut *tx)
        .await?;
    let event = NotificationEvent {
        notification_id: id,
    };
    let message = outbox::Message::new(NOTIFICATIONS, &event)?
        .ordering_key(format!("evidence:{job}"))?
        .headers(&json!({ "type": kind }))?;
    outbox::enqueue(tx, &message).await?;
    Ok(())
}

pub(crate) async fn notification(
    pool: &PgPool,
    id: Uuid,
) -> Result<Option<Notification>, sqlx::Error> {
    sqlx::query_as(NOTIFICATION)
        .bind(id)
        .fetch_optional(pool)
        .await
}

pub(crate) async fn mark_delivered(pool: &PgPool, id: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query(MARK_DELIVERED)
        .bind(id)
        .execute(pool)
        .await
        .map(drop)
}
