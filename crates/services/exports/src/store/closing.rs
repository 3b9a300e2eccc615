//! Closing and reopening jobs.
//!
//! The transaction that settles an input only ever fails its job, which needs no counting. Completion happens afterwards,
//! in a short transaction that locks the job and checks again. Closed jobs stay closed until a redrive.

use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::{model::JobStatus, table::parked_reason};

const LOCK_KEY: &str =
    "select job_id, number, status from exports.export_job where job_key = $1 for update";

/// Ordered, so that two of these can't deadlock.
const LOCK_OPEN: &str = "
select job_id from exports.export_job
where job_id = any($1) and completed_at is null order by job_id for update";

/// A check without a lock: most checked jobs aren't finished yet. Index: export_job_input_open.
const FINISHED: &str = "
select j.job_id from exports.export_job j
where j.job_id = any($1) and j.completed_at is null
  and not exists (select 1 from exports.export_job_input i where i.job_id = j.job_id and i.finished_at is null)";

const STILL_OPEN: &str =
    "select job_id from exports.export_job where job_id = any($1) and completed_at is null";

/// Under the lock, with a snapshot of its own: the check above may be stale. A missing input is an archived dead letter
/// without a file.
const COMPLETE: &str = "
update exports.export_job j set status = 'COMPLETED', completed_at = now(), started_at = coalesce(j.started_at, now())
where j.job_id = any($1) and j.completed_at is null
  and not exists (select 1 from exports.export_job_input i where i.job_id = j.job_id and i.finished_at is null)
  and not exists (select 1 from exports.export_job_input i where i.job_id = j.job_id and i.status = 'DLQ' and i.cause is not null)
  and (select count(*) from exports.export_job_input i where i.job_id = j.job_id) >= j.total_inputs
returning j.job_key";

/// Under the same lock: these jobs have nothing left to do and aren't complete. The number of archived inputs is computed
/// when the job is shown.
const FAIL_ARCHIVED: &str = "
update exports.export_job j
set status = 'FAILED', completed_at = now(), error_message = 'dead inputs were archived without a file'
where j.job_id = any($1) and j.completed_at is null
  and not exists (select 1 from exports.export_job_input i where i.job_id = j.job_id and i.finished_at is null)
  and not exists (select 1 from exports.export_job_input i where i.job_id = j.job_id and i.status = 'DLQ' and i.cause is not null)
  and (select count(*) from exports.export_job_input i where i.job_id = j.job_id) < j.total_inputs
returning j.job_key";

const FAIL: &str = "
update exports.export_job set status = 'FAILED', completed_at = now(), error_message = $2
where job_id = $1 and completed_at is null";

const CANCEL: &str = "
update exports.export_job set status = 'CANCELLED', completed_at = now()
where job_id = $1 and completed_at is null";

/// Inputs that haven't started leave the claim index; running ones finish.
const PARK: &str = "
update exports.export_job_input set next_retry_at = 'infinity', parked = $2
where job_id = $1 and finished_at is null and lease_until is null and next_retry_at < 'infinity'";

const OPEN_JOBS: &str = "
select job_id from exports.export_job where completed_at is null and job_id > $1 order by job_id limit $2";

/// Index: ix_export_job_open.
const COUNT_OPEN: &str = "
select count(*), coalesce(extract(epoch from clock_timestamp() - min(o.requested_at)), 0)::float8
from (select requested_at from exports.export_job where completed_at is null limit 10000) o";

/// Open jobs with a dead input: the transaction that marked it dead couldn't close the job.
const WITH_DEAD_INPUT: &str = "
select distinct on (j.job_id) j.job_id, i.index_key, i.effective_date, i.asof_indicator, i.error_code, i.error_message
from exports.export_job j join exports.export_job_input i on i.job_id = j.job_id
where j.job_id = any($1) and i.finished_at is not null and i.status = 'DLQ'
order by j.job_id, i.finished_at";

/// Closed jobs with claimable inputs: they were running when the job was closed and failed afterwards.
const CLAIMABLE_CLOSED: &str = "
select j.job_id, j.status from exports.export_job j
where j.completed_at > now() - interval '7 days' and j.status in ('FAILED', 'CANCELLED')
  and exists (select 1 from exports.export_job_input i
              where i.job_id = j.job_id and i.finished_at is null and i.next_retry_at < 'infinity')
limit 1000";

const LOCK_CLOSED: &str =
    "select 1 from exports.export_job where job_id = $1 and completed_at is not null for update";

/// Only if an input can resume.
const REOPEN: &str = "
select case when exists (select 1 from exports.export_job_input where job_id = $1 and finished_at is null)
            then exports.open_again($1) else false end";

const DEAD_INPUTS: &str = "
select id from exports.export_job_input where job_id = $1 and finished_at is not null and status = 'DLQ' order by id";

/// Locks whose claims are gone.
const RELEASE_FILE_LOCKS: &str = "
delete from exports.export_generation g where not exports.generation_is_held(g.input_id, g.fence)";

/// Locks a job; returns its id, number and status.
pub(crate) async fn lock(
    tx: &mut PgConnection,
    key: &str,
) -> Result<Option<(Uuid, i64, JobStatus)>, sqlx::Error> {
    sqlx::query_as(LOCK_KEY).bind(key).fetch_optional(tx).await
}

/// The keys of the jobs that were closed.
#[derive(Debug, Default)]
pub(crate) struct ClosedJobs {
    /// Every input has its file.
    pub completed: Vec<String>,
    /// Some inputs were archived without a file.
    pub failed: Vec<String>,
}

/// Closes those of these jobs that have nothing left to do.
pub(crate) async fn complete(pool: &PgPool, jobs: &[Uuid]) -> Result<ClosedJobs, sqlx::Error> {
    let finished: Vec<Uuid> = sqlx::query_scalar(FINISHED)
        .bind(jobs)
        .fetch_all(pool)
        .await?;
    if finished.is_empty() {
        return Ok(ClosedJobs::default());
    }
    let mut tx = pool.begin().await?;
    let locked: Vec<Uuid> = sqlx::query_scalar(LOCK_OPEN)
        .bind(finished)
        .fetch_all(&mut *tx)
        .await?;
    let completed: Vec<String> = sqlx::query_scalar(COMPLETE)
        .bind(&locked)
        .fetch_all(&mut *tx)
        .await?;
    let failed = if completed.len() < locked.len() {
        sqlx::query_scalar(FAIL_ARCHIVED)
            .bind(&locked)
            .fetch_all(&mut *tx)
            .await?
    } else {
        Vec::new()
    };
    tx.commit().await?;
    Ok(ClosedJobs { completed, failed })
}

/// Those of these jobs that are open.
pub(crate) async fn still_open(
    database: impl PgExecutor<'_>,
    jobs: &[Uuid],
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(STILL_OPEN)
        .bind(jobs)
        .fetch_all(database)
        .await
}

/// Fails an open job and parks its unstarted inputs. Returns false if it was closed already.
pub(crate) async fn fail(
    tx: &mut PgConnection,
    job: Uuid,
    reason: &str,
) -> Result<bool, sqlx::Error> {
    let failed = sqlx::query(FAIL)
        .bind(job)
        .bind(reason)
        .execute(&mut *tx)
        .await?
        .rows_affected()
        > 0;
    if failed {
        park(tx, job, JobStatus::Failed).await?;
    }
    Ok(failed)
}

/// Cancels an open job and parks its unstarted inputs.
pub(crate) async fn cancel(tx: &mut PgConnection, job: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query(CANCEL).bind(job).execute(&mut *tx).await?;
    park(tx, job, JobStatus::Cancelled).await
}

async fn park(tx: &mut PgConnection, job: Uuid, status: JobStatus) -> Result<(), sqlx::Error> {
    sqlx::query(PARK)
        .bind(job)
        .bind(parked_reason(status))
        .execute(tx)
        .await?;
    Ok(())
}

/// Parks the claimable inputs of closed jobs; returns the number of jobs.
pub(crate) async fn park_closed(pool: &PgPool) -> Result<usize, sqlx::Error> {
    let jobs: Vec<(Uuid, JobStatus)> = sqlx::query_as(CLAIMABLE_CLOSED).fetch_all(pool).await?;
    for (job, status) in &jobs {
        let mut tx = pool.begin().await?;
        // It may have been reopened meanwhile.
        let closed = sqlx::query(LOCK_CLOSED)
            .bind(job)
            .fetch_optional(&mut *tx)
            .await?
            .is_some();
        if closed {
            park(&mut tx, *job, *status).await?;
        }
        tx.commit().await?;
    }
    Ok(jobs.len())
}

/// A page of open jobs after this one.
pub(crate) async fn open_jobs(
    pool: &PgPool,
    after: Uuid,
    limit: i64,
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(OPEN_JOBS)
        .bind(after)
        .bind(limit)
        .fetch_all(pool)
        .await
}

/// A dead input of an open job.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct DeadInput {
    pub job_id: Uuid,
    pub index_key: String,
    pub effective_date: i32,
    pub asof_indicator: String,
    pub error_code: String,
    pub error_message: Option<String>,
}

/// The first dead input of each of these jobs that has one.
pub(crate) async fn jobs_with_dead_input(
    pool: &PgPool,
    jobs: &[Uuid],
) -> Result<Vec<DeadInput>, sqlx::Error> {
    sqlx::query_as(WITH_DEAD_INPUT)
        .bind(jobs)
        .fetch_all(pool)
        .await
}

/// The dead inputs of a job.
pub(crate) async fn dead_inputs(tx: &mut PgConnection, job: Uuid) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(DEAD_INPUTS)
        .bind(job)
        .fetch_all(tx)
        .await
}

/// Reopens a failed job for its parked inputs; false if it has none.
pub(crate) async fn reopen(tx: &mut PgConnection, job: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(REOPEN).bind(job).fetch_one(tx).await
}

/// Releases file locks whose claims are gone; returns their number.
pub(crate) async fn release_file_locks(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let released = sqlx::query(RELEASE_FILE_LOCKS).execute(pool).await?;
    Ok(released.rows_affected())
}

/// The number of open jobs, and the age of the oldest in seconds.
pub(crate) async fn count_open(pool: &PgPool) -> Result<(i64, f64), sqlx::Error> {
    sqlx::query_as(COUNT_OPEN).fetch_one(pool).await
}
