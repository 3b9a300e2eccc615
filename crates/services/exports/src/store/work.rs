//! What workers read and write, for many inputs at a time.
//!
//! Every statement brings the fences of the claims that it speaks for: what is no longer held is neither read nor
//! written.

use std::{collections::HashMap, sync::Arc};

use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use crate::{model::JobStatus, settings::ReuseSettings};

/// Where each input stands: its job, and the file that may be used again. Today is the database's, in UTC.
const OPEN: &str = "
select i.id, j.job_id, j.job_key, j.status, a.s3_path as known, coalesce(a.source_job_id = j.job_id, false) as own,
       $3 and to_date(lpad(i.effective_date::text, 8, '0'), 'YYYYMMDD') <= (now() at time zone 'utc')::date - $4 as reusable
from unnest($1::bigint[], $2::bigint[]) u(id, fence)
join exports.export_job_input i on i.id = u.id and i.fence = u.fence
join exports.export_job j on j.job_id = i.job_id
left join exports.export_artifact a
  on a.index_key = i.index_key and a.effective_date = i.effective_date and a.asof_indicator = i.asof_indicator";

const START: &str = "
update exports.export_job set status = 'RUNNING', started_at = now()
where job_id = any($1) and status = 'SUBMITTED'";

/// Takes the right to make a file, unless somebody has it whose lease is good. The commit need not wait for the disk: a
/// right that is lost with the server costs at most a file that is made twice, in the same place.
const TAKE: &str = "
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

/// What each input got (an error of before is overcome), the registry's entry for each file that was made, and the rights given back.
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
given_back as (
    delete from exports.export_generation g using held h
    where g.index_key = h.index_key and g.effective_date = h.effective_date and g.asof_indicator = h.asof_indicator
      and g.input_id = h.id)
select count(*) from held";

/// A claimed input: its id and the fence of the claim.
pub(crate) type Held = (i64, i64);

/// Where a held input stands.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Standing {
    id: i64,
    /// The job.
    pub job_id: Uuid,
    /// The job's key.
    pub job_key: String,
    /// The job's state.
    pub status: JobStatus,
    /// The latest file of this key, if any was made.
    pub known: Option<String>,
    /// This job made it: an earlier attempt that was not settled.
    pub own: bool,
    /// May another job's file be used?
    pub reusable: bool,
}

/// Where these inputs stand; none for those whose lease is lost. Their jobs are running from now on.
pub(crate) async fn open(
    connection: &mut PgConnection,
    reuse: ReuseSettings,
    held: &[Held],
) -> Result<Vec<Option<Standing>>, sqlx::Error> {
    let (ids, fences): (Vec<i64>, Vec<i64>) = held.iter().copied().unzip();
    let rows: Vec<Standing> = sqlx::query_as(OPEN)
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
    start(connection, &fresh).await?;
    let mut by_id: HashMap<i64, Standing> = rows.into_iter().map(|row| (row.id, row)).collect();
    Ok(held.iter().map(|(id, _)| by_id.remove(id)).collect())
}

/// These jobs are running from now on.
pub(crate) async fn start(database: impl PgExecutor<'_>, jobs: &[Uuid]) -> Result<(), sqlx::Error> {
    if jobs.is_empty() {
        return Ok(());
    }
    let started = sqlx::query(START).bind(jobs).execute(database);
    started.await.map(drop)
}

/// Who of these may make its file now.
pub(crate) async fn take(
    connection: &mut PgConnection,
    held: &[Held],
) -> Result<Vec<bool>, sqlx::Error> {
    let (ids, fences): (Vec<i64>, Vec<i64>) = held.iter().copied().unzip();
    let taken: Vec<i64> = sqlx::query_scalar(TAKE)
        .bind(ids)
        .bind(fences)
        .fetch_all(connection)
        .await?;
    Ok(held.iter().map(|(id, _)| taken.contains(id)).collect())
}

/// What became of a held input.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Which input.
    pub held: Held,
    /// Where its file is.
    pub path: String,
    /// Another job made it.
    pub reused: bool,
}

/// Writes what became of these, in the transaction that settles them: a lease that is lost spoils it.
pub(crate) async fn record(tx: &mut PgConnection, found: &[Arc<Found>]) -> Result<(), sqlx::Error> {
    let (ids, fences): (Vec<i64>, Vec<i64>) = found.iter().map(|found| found.held).unzip();
    let paths: Vec<&str> = found.iter().map(|found| found.path.as_str()).collect();
    let reused: Vec<bool> = found.iter().map(|found| found.reused).collect();
    sqlx::query(RECORD)
        .bind(ids)
        .bind(fences)
        .bind(paths)
        .bind(reused)
        .execute(tx)
        .await
        .map(drop)
}
