//! Inputs whose file exists, found and finished before they are claimed.

use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::work;
use crate::{model::JobStatus, settings::ReuseSettings};

/// The next claimable inputs, each with the file that may be reused for it, if one is registered. "Today" is the
/// database's, in UTC; dates as yyyymmdd numbers sort like dates. Index: export_job_input_claim.
const SCAN: &str = "
select i.next_retry_at as due, i.id, i.job_id as job, j.status, a.s3_path as path
from (select next_retry_at, id, job_id, index_key, effective_date, asof_indicator
      from exports.export_job_input
      where finished_at is null and status = 'PENDING' and next_retry_at <= now()
        and (next_retry_at, id) > (coalesce($1, '-infinity'), $2)
      order by next_retry_at, id limit $3) i
join exports.export_job j using (job_id)
left join lateral (
    select a.s3_path from exports.export_artifact a
    where a.index_key = i.index_key and a.effective_date = i.effective_date and a.asof_indicator = i.asof_indicator
      and a.source_job_id <> i.job_id and j.completed_at is null
      and i.effective_date <= (select to_char((now() at time zone 'utc')::date - $4, 'YYYYMMDD')::int)
    limit 1) a on true
order by i.next_retry_at, i.id";

/// Locks jobs first, as closing a job does: waits for a job that is being closed and then skips it. `coalesce` makes the
/// planner look inputs up by id instead of reading all inputs of a job.
const FINISH: &str = "
with open as materialized (
    select job_id from exports.export_job where job_id = any($3) and completed_at is null order by job_id for share)
update exports.export_job_input i
set status = 'SUCCEEDED', finished_at = clock_timestamp(), s3_path = g.path, is_reused = true
from unnest($1::bigint[], $2::text[]) g(id, path)
where i.id = g.id and i.status = 'PENDING' and coalesce(i.job_id = any(array(select job_id from open)), false)";

/// A position in the claim order; the default is the front.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ScanCursor {
    due: Option<OffsetDateTime>,
    id: i64,
}

/// The result of a scan.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Inputs with a registered file; their jobs are `RUNNING` from now on.
    pub inputs: Vec<Reusable>,
    /// The position of the last scanned input.
    pub reached: ScanCursor,
    /// Whether there may be more behind it.
    pub more: bool,
}

#[derive(sqlx::FromRow)]
struct Row {
    due: OffsetDateTime,
    id: i64,
    job: Uuid,
    status: JobStatus,
    path: Option<String>,
}

/// An input and the file that may be reused for it.
#[derive(Debug)]
pub(crate) struct Reusable {
    pub id: i64,
    pub job: Uuid,
    pub path: String,
}

/// Scans up to `limit` inputs behind this position.
pub(crate) async fn scan(
    pool: &PgPool,
    reuse: ReuseSettings,
    from: ScanCursor,
    limit: u32,
) -> Result<Scan, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(SCAN)
        .bind(from.due)
        .bind(from.id)
        .bind(i64::from(limit))
        .bind(reuse.days)
        .fetch_all(pool)
        .await?;
    let more = rows.len() == limit as usize;
    let reached = rows.last().map_or(from, |row| ScanCursor {
        due: Some(row.due),
        id: row.id,
    });
    let mut fresh: Vec<Uuid> = rows
        .iter()
        .filter(|row| row.path.is_some() && row.status == JobStatus::Submitted)
        .map(|row| row.job)
        .collect();
    fresh.sort_unstable();
    fresh.dedup();
    work::start_jobs(pool, &fresh).await?;
    let inputs = rows.into_iter().filter_map(|row| {
        let (id, job) = (row.id, row.job);
        row.path.map(|path| Reusable { id, job, path })
    });
    Ok(Scan {
        inputs: inputs.collect(),
        reached,
        more,
    })
}

/// Finishes these inputs with their files, except claimed ones and those of closed jobs. Returns their number.
pub(crate) async fn finish(pool: &PgPool, inputs: &[Reusable]) -> Result<u64, sqlx::Error> {
    let ids: Vec<i64> = inputs.iter().map(|input| input.id).collect();
    let paths: Vec<&str> = inputs.iter().map(|input| input.path.as_str()).collect();
    let mut jobs: Vec<Uuid> = inputs.iter().map(|input| input.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let done = sqlx::query(FINISH)
        .bind(ids)
        .bind(paths)
        .bind(jobs)
        .execute(pool)
        .await?;
    Ok(done.rows_affected())
}
