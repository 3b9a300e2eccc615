//! What workers read and write, for many inputs at a time.
//!
//! Every statement carries the fences of its claims: an input whose claim is lost is neither read nor written.

use std::{collections::HashMap, sync::Arc};

use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use crate::{model::JobStatus, settings::ReuseSettings};

/// Each input's job, and the registered file for its key. "Today" is the database's, in UTC.
const CONTEXT: &str = "
select i.id, j.job_id, j.job_key, j.status, a.s3_path as registered, coalesce(a.source_job_id = j.job_id, false) as own,
       $3 and to_date(lpad(i.effective_date::text, 8, '0'), 'YYYYMMDD') <= (now() at time zone 'utc')::date - $4 as reusable
from unnest($1::bigint[], $2::bigint[]) u(id, fence)
join exports.export_job_input i on i.id = u.id and i.fence = u.fence
join exports.export_job j on j.job_id = i.job_id
left join exports.export_artifact a
  on a.index_key = i.index_key and a.effective_date = i.effective_date and a.asof_indicator = i.asof_indicator";

const START_JOBS: &str = "
update exports.export_job set status = 'RUNNING', started_at = now()
where job_id = any($1) and status = 'SUBMITTED'";

/// Locks the generation of a file, unless a live claim holds the lock. The commit doesn't wait for the disk: a lock that
/// a server crash loses costs at most a file that is generated twice, at the same path.
const LOCK_FILES: &str = "
insert into exports.export_generation as g (index_key, effective_date, asof_indicator, input_id, fence)
select distinct on (i.index_key, i.effective_date, i.asof_indicator)
       i.index_key, i.effective_date, i.asof_indicator, i.id, i.fence
from unnest($1::bigint[], $2::bigint[]) u(id, fence)
join exports.export_job_input i on i.id = u.id and i.fence = u.fence
where (select set_config('synchronous_commit', 'off', true)) is not null
order by i.index_key, i.effective_date, i.asof_indicator, i.id
on conflict (index_key, effective_date, asof_indicator) do update
    set input_id = excluded.input_id, fence = excluded.fence
    where (g.input_id = excluded.input_id and g.fence = excluded.fence)
       or not exports.generation_is_held(g.input_id, g.fence)
returning g.input_id";

/// Records each input's file (and clears its last error), registers generated files, and releases the file locks.
const RECORD: &str = "
with held as (
    update exports.export_job_input i
    set s3_path = g.path, is_reused = g.reused, error_code = null, error_category = null, error_message = null
    from unnest($1::bigint[], $2::bigint[], $3::text[], $4::boolean[]) g(id, fence, path, reused) where i.id = g.id and i.fence = g.fence
    returning i.id, i.job_id, i.index_key, i.effective_date, i.asof_indicator, i.s3_path, i.is_reused),
registered as (
    insert into exports.export_artifact (index_key, effective_date, asof_indicator, s3_path, source_job_id)
    select distinct on (h.index_key, h.effective_date, h.asof_indicator)
           h.index_key, h.effective_date, h.asof_indicator, h.s3_path, h.job_id
    from held h where not h.is_reused
    order by h.index_key, h.effective_date, h.asof_indicator, h.id desc
    on conflict (index_key, effective_date, asof_indicator) do update
        set s3_path = excluded.s3_path, source_job_id = excluded.source_job_id, generated_at = now()),
released as (
    delete from exports.export_generation g using held h
    where g.index_key = h.index_key and g.effective_date = h.effective_date and g.asof_indicator = h.asof_indicator
      and g.input_id = h.id)
select count(*) from held";

/// A claimed input: its id and the claim's fence.
pub(crate) type Claim = (i64, i64);

/// What a worker needs to know about a claimed input.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct InputContext {
    id: i64,
    pub job_id: Uuid,
    pub job_key: String,
    pub status: JobStatus,
    /// The latest registered file for this key.
    pub registered: Option<String>,
    /// This job generated it, in an attempt that wasn't settled.
    pub own: bool,
    /// Whether another job's file may be reused.
    pub reusable: bool,
}

/// The context of each claim; `None` if its lease is lost. Sets their jobs to `RUNNING`.
pub(crate) async fn context(
    connection: &mut PgConnection,
    reuse: ReuseSettings,
    claims: &[Claim],
) -> Result<Vec<Option<InputContext>>, sqlx::Error> {
    let (ids, fences): (Vec<i64>, Vec<i64>) = claims.iter().copied().unzip();
    let rows: Vec<InputContext> = sqlx::query_as(CONTEXT)
        .bind(ids)
        .bind(fences)
        .bind(reuse.enabled)
        .bind(reuse.days)
        .fetch_all(&mut *connection)
        .await?;
    let mut fresh: Vec<Uuid> = rows
        .iter()
        .filter(|row| row.status == JobStatus::Submitted)
        .map(|row| row.job_id)
        .collect();
    fresh.sort_unstable();
    fresh.dedup();
    start_jobs(connection, &fresh).await?;
    let mut by_id: HashMap<i64, InputContext> = rows.into_iter().map(|row| (row.id, row)).collect();
    Ok(claims.iter().map(|(id, _)| by_id.remove(id)).collect())
}

/// Sets submitted jobs to `RUNNING`.
pub(crate) async fn start_jobs(
    database: impl PgExecutor<'_>,
    jobs: &[Uuid],
) -> Result<(), sqlx::Error> {
    if jobs.is_empty() {
        return Ok(());
    }
    sqlx::query(START_JOBS)
        .bind(jobs)
        .execute(database)
        .await
        .map(drop)
}

/// Whether each claim got the lock on its file.
pub(crate) async fn lock_files(
    connection: &mut PgConnection,
    claims: &[Claim],
) -> Result<Vec<bool>, sqlx::Error> {
    let (ids, fences): (Vec<i64>, Vec<i64>) = claims.iter().copied().unzip();
    let locked: Vec<i64> = sqlx::query_scalar(LOCK_FILES)
        .bind(ids)
        .bind(fences)
        .fetch_all(connection)
        .await?;
    Ok(claims.iter().map(|(id, _)| locked.contains(id)).collect())
}

/// The file of a claimed input.
#[derive(Debug, Clone)]
pub(crate) struct InputFile {
    pub claim: Claim,
    /// The file's address.
    pub path: String,
    /// Another job generated it.
    pub reused: bool,
}

/// Records these files in the transaction that settles their inputs; a lost lease rolls it back.
pub(crate) async fn record(
    tx: &mut PgConnection,
    files: &[Arc<InputFile>],
) -> Result<(), sqlx::Error> {
    let (ids, fences): (Vec<i64>, Vec<i64>) = files.iter().map(|file| file.claim).unzip();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let reused: Vec<bool> = files.iter().map(|file| file.reused).collect();
    sqlx::query(RECORD)
        .bind(ids)
        .bind(fences)
        .bind(paths)
        .bind(reused)
        .execute(tx)
        .await
        .map(drop)
}
