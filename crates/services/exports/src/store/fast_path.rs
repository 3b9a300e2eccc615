//! What is read and written ahead of the claims.

use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use super::work;
use crate::{model::JobStatus, settings::ReuseSettings};

/// The next inputs that could be claimed, each with the file that may be used for it, if one is known. Today is the
/// database's, in UTC; days written as numbers have the order of the days. Index: export_job_input_claim.
const LOOK: &str = "
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

/// Jobs first, as whoever closes one locks it first: a job that is being closed is waited for, and then left alone.
/// Inputs are found by their ids: `coalesce` keeps the planner from reading a whole job for them.
const FINISH: &str = "
with open as materialized (
    select job_id from exports.export_job where job_id = any($3) and completed_at is null order by job_id for share)
update exports.export_job_input i
set status = 'SUCCEEDED', finished_at = clock_timestamp(), s3_path = g.path, is_reused = true
from unnest($1::bigint[], $2::text[]) g(id, path)
where i.id = g.id and i.status = 'PENDING' and coalesce(i.job_id = any(array(select job_id from open)), false)";

/// A place in the queue; the first one is before everybody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    due: Option<OffsetDateTime>,
    id: i64,
}

/// What a look has found.
#[derive(Debug)]
pub(crate) struct Looked {
    /// Inputs with a known file; their jobs are running from now on.
    pub known: Vec<Known>,
    /// The place of the last input that was looked at.
    pub reached: Place,
    /// May there be others behind it?
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

/// An input, and the file that is known for it.
#[derive(Debug)]
pub(crate) struct Known {
    pub id: i64,
    pub job: Uuid,
    pub path: String,
}

/// Looks at so many inputs behind this place.
pub(crate) async fn look(
    pool: &PgPool,
    reuse: ReuseSettings,
    from: Place,
    most: u32,
) -> Result<Looked, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(LOOK)
        .bind(from.due)
        .bind(from.id)
        .bind(i64::from(most))
        .bind(reuse.days)
        .fetch_all(pool)
        .await?;
    let more = rows.len() == most as usize;
    let reached = rows.last().map_or(from, |row| Place {
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
    work::start(pool, &fresh).await?;
    let known = rows.into_iter().filter_map(|row| {
        let (id, job) = (row.id, row.job);
        row.path.map(|path| Known { id, job, path })
    });
    Ok(Looked {
        known: known.collect(),
        reached,
        more,
    })
}

/// Gives these inputs their files, but for those that somebody has claimed, and those of closed jobs. Says how many.
pub(crate) async fn finish(pool: &PgPool, known: &[Known]) -> Result<u64, sqlx::Error> {
    let ids: Vec<i64> = known.iter().map(|known| known.id).collect();
    let paths: Vec<&str> = known.iter().map(|known| known.path.as_str()).collect();
    let mut jobs: Vec<Uuid> = known.iter().map(|known| known.job).collect();
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
