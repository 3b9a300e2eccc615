//! All SQL of the slice: here what clients send and see; [`work`] and [`fast_path`] are the workers', [`closing`] closes and
//! reopens jobs, [`timeline`] reads a job's history.
//!
//! Lock order: a job before its inputs.

pub(crate) mod closing;
pub(crate) mod fast_path;
pub(crate) mod timeline;
pub(crate) mod work;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::model::{
    FileView, Input, InputStatus, InputView, JobStatus, JobSummary, Progress, Submission,
};

/// A job's key is the UTC date by the database's clock and a number of at least six digits.
const INSERT_JOB: &str = "
insert into exports.export_job (job_id, number, job_key, total_inputs)
select $1, n.number,
       'J' || to_char(now() at time zone 'utc', 'YYYYMMDD') || '_'
           || lpad(n.number::text, greatest(6, length(n.number::text)), '0'),
       $2
from (select nextval('exports.export_job_number') as number) n
returning job_key";

/// In the client's order, which claims and listings follow.
const INSERT_INPUTS: &str = "
insert into exports.export_job_input (input_id, job_id, index_key, effective_date, asof_indicator)
select u.input, $1, u.key, u.day, u.asof
from unnest($2::uuid[], $3::text[], $4::integer[], $5::text[]) with ordinality u(input, key, day, asof, place)
order by u.place";

const FIND_ALL: &str = "select job_id from exports.export_job where job_key = any($1)";

const FIND: &str = "select job_id from exports.export_job where job_key = $1";

/// `retrying` are waiting inputs that have failed before. A missing input is an archived dead letter.
const PROGRESS: &str = "
select j.job_key, j.status, j.total_inputs::bigint as total,
       j.error_message || case when c.kept < j.total_inputs
                               then format(' (archived inputs: %s of %s)', j.total_inputs - c.kept, j.total_inputs) else '' end
           as error_message,
       c.pending, c.retrying, c.running, c.done, c.failed + greatest(j.total_inputs - c.kept, 0) as failed,
       c.files_generated, c.files_reused
from exports.export_job j, lateral (
    select count(*) as kept,
           count(*) filter (where i.status in ('PENDING', 'RETRY_WAIT')) as pending,
           count(*) filter (where i.status = 'RETRY_WAIT' and i.attempt_count > 0) as retrying,
           count(*) filter (where i.status = 'RUNNING') as running,
           count(*) filter (where i.status = 'SUCCEEDED') as done,
           count(*) filter (where i.status = 'DLQ') as failed,
           count(*) filter (where i.status = 'SUCCEEDED' and not i.is_reused) as files_generated,
           count(*) filter (where i.status = 'SUCCEEDED' and i.is_reused) as files_reused
    from exports.export_job_input i where i.job_id = j.job_id) c
where j.job_id = any($1)";

/// Index: export_job_input_job.
const FILES: &str = "
select i.id, i.index_key, i.effective_date, i.asof_indicator, i.s3_path
from exports.export_job_input i
where i.job_id = $1 and i.id > $2 and i.status = 'SUCCEEDED'
order by i.id limit $3";

const FILE: &str = "
select s3_path from exports.export_job_input
where job_id = $1 and index_key = $2 and effective_date = $3 and asof_indicator = $4 and status = 'SUCCEEDED'";

/// Index: export_job's unique number, or the one on status and number.
const LIST: &str = "
select j.number, j.job_key, j.status, j.total_inputs, j.requested_at, j.started_at, j.completed_at, j.error_message
from exports.export_job j
where j.number < coalesce($1, 9223372036854775807)
  and ($2::text is null or j.status = $2)
  and ($3::timestamptz is null or j.requested_at >= $3)
  and ($4::timestamptz is null or j.requested_at < $4)
order by j.number desc limit $5";

/// Index: export_job_input_job. The path is final, and shown, once the input is finished.
const INPUTS: &str = "
select i.id, i.index_key, i.effective_date, i.asof_indicator, i.status, i.attempt_count,
       i.status = 'SUCCEEDED' and i.is_reused as is_reused,
       case when i.status = 'SUCCEEDED' then i.s3_path end as s3_path, i.error_code, i.error_message
from exports.export_job_input i
where i.job_id = $1 and i.id > $2 and ($3::text is null or i.status = $3)
order by i.id limit $4";

/// Inserts a job and its inputs; returns the job's key.
pub(crate) async fn insert(
    tx: &mut PgConnection,
    submission: &Submission,
) -> Result<String, sqlx::Error> {
    let job = Uuid::now_v7();
    let inputs = &submission.inputs;
    let key: String = sqlx::query_scalar(INSERT_JOB)
        .bind(job)
        .bind(i32::try_from(inputs.len()).unwrap_or(i32::MAX))
        .fetch_one(&mut *tx)
        .await?;
    let ids: Vec<Uuid> = inputs.iter().map(|_| Uuid::now_v7()).collect();
    let keys: Vec<&str> = inputs.iter().map(|input| &*input.index_key).collect();
    let days: Vec<i32> = inputs.iter().map(|input| input.effective_date).collect();
    let indicators: Vec<&str> = inputs.iter().map(|input| &*input.asof_indicator).collect();
    sqlx::query(INSERT_INPUTS)
        .bind(job)
        .bind(ids)
        .bind(keys)
        .bind(days)
        .bind(indicators)
        .execute(tx)
        .await?;
    Ok(key)
}

/// The id of the job with this key.
pub(crate) async fn find(pool: &PgPool, key: &str) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar(FIND)
        .bind(key)
        .fetch_optional(pool)
        .await
}

/// A job's progress.
pub(crate) async fn progress(pool: &PgPool, job: Uuid) -> Result<Progress, sqlx::Error> {
    sqlx::query_as(PROGRESS).bind([job]).fetch_one(pool).await
}

/// The progress of the jobs with these keys.
pub(crate) async fn progress_of(
    pool: &PgPool,
    keys: &[&str],
) -> Result<Vec<Progress>, sqlx::Error> {
    let jobs: Vec<Uuid> = sqlx::query_scalar(FIND_ALL)
        .bind(keys)
        .fetch_all(pool)
        .await?;
    sqlx::query_as(PROGRESS).bind(jobs).fetch_all(pool).await
}

#[derive(sqlx::FromRow)]
struct WithId<T> {
    id: i64,
    #[sqlx(flatten)]
    row: T,
}

/// Finished inputs after the id `after`, each with its id.
pub(crate) async fn files(
    pool: &PgPool,
    job: Uuid,
    after: i64,
    limit: i64,
) -> Result<Vec<(i64, FileView)>, sqlx::Error> {
    let rows: Vec<WithId<FileView>> = sqlx::query_as(FILES)
        .bind(job)
        .bind(after)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.row)).collect())
}

/// The address of a finished input's file.
pub(crate) async fn file(
    pool: &PgPool,
    job: Uuid,
    input: &Input,
) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(FILE)
        .bind(job)
        .bind(&input.index_key)
        .bind(input.effective_date)
        .bind(&input.asof_indicator)
        .fetch_optional(pool)
        .await
}

/// Which jobs are listed.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Filter {
    /// With this status.
    pub status: Option<JobStatus>,
    /// Accepted at or after this time.
    #[serde(with = "time::serde::timestamp::nanoseconds::option")]
    pub since: Option<time::OffsetDateTime>,
    /// Accepted before this time.
    #[serde(with = "time::serde::timestamp::nanoseconds::option")]
    pub until: Option<time::OffsetDateTime>,
}

#[derive(sqlx::FromRow)]
struct Numbered {
    number: i64,
    #[sqlx(flatten)]
    job: JobSummary,
}

/// Jobs with a number below `before`, newest first, each with its number.
pub(crate) async fn list(
    pool: &PgPool,
    filter: &Filter,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<(i64, JobSummary)>, sqlx::Error> {
    let rows: Vec<Numbered> = sqlx::query_as(LIST)
        .bind(before)
        .bind(filter.status)
        .bind(filter.since)
        .bind(filter.until)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(|row| (row.number, row.job)).collect())
}

/// A job's inputs after the id `after`, in the order of the request.
pub(crate) async fn inputs(
    pool: &PgPool,
    job: Uuid,
    status: Option<InputStatus>,
    after: i64,
    limit: i64,
) -> Result<Vec<(i64, InputView)>, sqlx::Error> {
    let rows: Vec<WithId<InputView>> = sqlx::query_as(INPUTS)
        .bind(job)
        .bind(after)
        .bind(status)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.row)).collect())
}
