//! How jobs end, and how they begin anew.
//!
//! A job is never closed inside the settling of an input, but for a failure, which needs no counting: a short
//! transaction afterwards locks the job and looks again. Closed jobs stay closed until a redrive.

use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::{model::JobStatus, table::why_parked};

const LOCK_KEY: &str =
    "select job_id, number, status from exports.export_job where job_key = $1 for update";

/// In one order everywhere.
const LOCK_OPEN: &str = "
select job_id from exports.export_job
where job_id = any($1) and completed_at is null order by job_id for update";

/// A look without a lock: most jobs that are asked about are not finished yet. Index: export_job_input_open.
const FINISHED: &str = "
select j.job_id from exports.export_job j
where j.job_id = any($1) and j.completed_at is null
  and not exists (select 1 from exports.export_job_input i where i.job_id = j.job_id and i.finished_at is null)";

const STILL_OPEN: &str =
    "select job_id from exports.export_job where job_id = any($1) and completed_at is null";

/// Under the lock, with a snapshot of its own: the look above may be old. An input that is not there was given up and
/// archived, and has no file.
const COMPLETE: &str = "
update exports.export_job j set status = 'COMPLETED', completed_at = now(), started_at = coalesce(j.started_at, now())
where j.job_id = any($1) and j.completed_at is null
  and not exists (select 1 from exports.export_job_input i where i.job_id = j.job_id and i.finished_at is null)
  and not exists (select 1 from exports.export_job_input i where i.job_id = j.job_id and i.status = 'DLQ' and i.cause is not null)
  and (select count(*) from exports.export_job_input i where i.job_id = j.job_id) >= j.total_inputs
returning j.job_key";

/// Under the same lock: nothing of these is left to be done, and they are not complete. How many were archived is counted
/// whenever the job is shown.
const FAIL_ARCHIVED: &str = "
update exports.export_job j
set status = 'FAILED', completed_at = now(), error_message = 'inputs that were given up are archived and have no file'
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

/// What nobody has begun leaves the claim index; what is running finishes.
const PARK: &str = "
update exports.export_job_input set next_retry_at = 'infinity', parked = $2
where job_id = $1 and finished_at is null and lease_until is null and next_retry_at < 'infinity'";

/// Open jobs, a page at a time.
const OPEN_JOBS: &str = "
select job_id from exports.export_job where completed_at is null and job_id > $1 order by job_id limit $2";

/// How many jobs are open, and the age of the oldest in seconds. Index: ix_export_job_open.
const OPEN: &str = "
select count(*), coalesce(extract(epoch from clock_timestamp() - min(o.requested_at)), 0)::float8
from (select requested_at from exports.export_job where completed_at is null limit 10000) o";

/// Open jobs with a dead input: whoever declared it dead could not close the job.
const FAILED: &str = "
select distinct on (j.job_id) j.job_id, i.index_key, i.effective_date, i.asof_indicator, i.error_code, i.error_message
from exports.export_job j join exports.export_job_input i on i.job_id = j.job_id
where j.job_id = any($1) and i.finished_at is not null and i.status = 'DLQ'
order by j.job_id, i.finished_at";

/// Closed jobs of which something may still be claimed: it was running when its job was closed, and gave up.
const LOOSE: &str = "
select j.job_id, j.status from exports.export_job j
where j.completed_at > now() - interval '7 days' and j.status in ('FAILED', 'CANCELLED')
  and exists (select 1 from exports.export_job_input i
              where i.job_id = j.job_id and i.finished_at is null and i.next_retry_at < 'infinity')
limit 1000";

const LOCK_CLOSED: &str =
    "select 1 from exports.export_job where job_id = $1 and completed_at is not null for update";

/// Only if that lets anything go on.
const OPEN_AGAIN: &str = "
select case when exists (select 1 from exports.export_job_input where job_id = $1 and finished_at is null)
            then exports.open_again($1) else false end";

const DEAD: &str = "
select id from exports.export_job_input where job_id = $1 and finished_at is not null and status = 'DLQ' order by id";

/// Rights to make a file whose holders are gone.
const FORGET_GENERATIONS: &str = "
delete from exports.export_generation g where not exports.generation_is_held(g.input_id, g.fence)";

/// Locks a job: its id, its number and its state.
pub(crate) async fn lock(
    tx: &mut PgConnection,
    key: &str,
) -> Result<Option<(Uuid, i64, JobStatus)>, sqlx::Error> {
    sqlx::query_as(LOCK_KEY).bind(key).fetch_optional(tx).await
}

/// The keys of jobs that were closed.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    /// Every input has its file.
    pub completed: Vec<String>,
    /// Inputs without a file were archived.
    pub failed: Vec<String>,
}

/// Closes those of these jobs of which nothing is left to be done.
pub(crate) async fn complete(pool: &PgPool, jobs: &[Uuid]) -> Result<Closed, sqlx::Error> {
    let finished: Vec<Uuid> = sqlx::query_scalar(FINISHED)
        .bind(jobs)
        .fetch_all(pool)
        .await?;
    if finished.is_empty() {
        return Ok(Closed::default());
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
    Ok(Closed { completed, failed })
}

/// Which of these jobs are open.
pub(crate) async fn still_open(
    database: impl PgExecutor<'_>,
    jobs: &[Uuid],
) -> Result<Vec<Uuid>, sqlx::Error> {
    sqlx::query_scalar(STILL_OPEN)
        .bind(jobs)
        .fetch_all(database)
        .await
}

/// Fails an open job and parks what was not begun; a closed one is left as it is.
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

/// Cancels an open job and parks what was not begun.
pub(crate) async fn cancel(tx: &mut PgConnection, job: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query(CANCEL).bind(job).execute(&mut *tx).await?;
    park(tx, job, JobStatus::Cancelled).await
}

async fn park(tx: &mut PgConnection, job: Uuid, status: JobStatus) -> Result<(), sqlx::Error> {
    sqlx::query(PARK)
        .bind(job)
        .bind(why_parked(status))
        .execute(tx)
        .await?;
    Ok(())
}

/// Parks what of closed jobs could still be claimed; says of how many.
pub(crate) async fn park_loose(pool: &PgPool) -> Result<usize, sqlx::Error> {
    let loose: Vec<(Uuid, JobStatus)> = sqlx::query_as(LOOSE).fetch_all(pool).await?;
    for (job, status) in &loose {
        let mut tx = pool.begin().await?;
        // Reopened meanwhile: then nothing of it is loose.
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
    Ok(loose.len())
}

/// A page of open jobs behind this one.
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
pub(crate) struct Dead {
    pub job_id: Uuid,
    pub index_key: String,
    pub effective_date: i32,
    pub asof_indicator: String,
    pub error_code: String,
    pub error_message: Option<String>,
}

/// Those of these open jobs that have a dead input.
pub(crate) async fn dead_of(pool: &PgPool, jobs: &[Uuid]) -> Result<Vec<Dead>, sqlx::Error> {
    sqlx::query_as(FAILED).bind(jobs).fetch_all(pool).await
}

/// The dead inputs of a job.
pub(crate) async fn dead(tx: &mut PgConnection, job: Uuid) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(DEAD).bind(job).fetch_all(tx).await
}

/// Opens a failed job again for what was parked with it; false if nothing was.
pub(crate) async fn open_again(tx: &mut PgConnection, job: Uuid) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(OPEN_AGAIN).bind(job).fetch_one(tx).await
}

/// Forgets rights whose holders are gone.
pub(crate) async fn forget_generations(pool: &PgPool) -> Result<u64, sqlx::Error> {
    let gone = sqlx::query(FORGET_GENERATIONS).execute(pool).await?;
    Ok(gone.rows_affected())
}

/// How many jobs are open, and the age of the oldest in seconds.
pub(crate) async fn open(pool: &PgPool) -> Result<(i64, f64), sqlx::Error> {
    sqlx::query_as(OPEN).fetch_one(pool).await
}
