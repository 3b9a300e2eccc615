//! The values of the gauges.

use sqlx::PgPool;

use crate::scheduler;

/// Attempts of the last hour, and those that were an artifact's last. Indexes: attach_attempt_at, the artifacts' primary key.
const RATES: &str = "
select count(*) filter (where t.attempt = 1) as first,
       count(*) filter (where t.attempt = 1 and t.outcome = 'ATTACHED') as first_attached,
       count(*) filter (where t.attempt > 1) as retries,
       count(*) filter (where t.attempt > 1 and t.outcome = 'ATTACHED') as retries_attached,
       count(*) filter (where a.retry_status = 'PERMANENT_FAILED' and a.attempt_count = t.attempt) as permanent
from evidence.attach_attempt t
left join evidence.file_job_artifact a on t.outcome = 'FAILED' and a.id = t.artifact_id
where t.at > now() - interval '1 hour' and t.outcome <> 'LOST'";

/// Artifacts that wait for a retry or are being retried. Index: idx_artifact_retry_scan.
const DEPTH: &str = "
select count(distinct a.file_job_row_id), count(*)
from evidence.file_job_artifact a join evidence.file_job j on j.id = a.file_job_id
where a.is_retryable and j.closed_at is null";

/// N2 of the last six hours, and forced ones of the last hour. Index: file_job_n2.
const N2: &str = "
select coalesce(avg(extract(epoch from n2_sent_at - n1_sent_at)), 0)::float8 as average,
       count(*) filter (where n2_forced and n2_sent_at > now() - interval '1 hour') as forced
from evidence.file_job where n2_sent_at > now() - interval '6 hours'";

/// When the scheduler last completed a run, in any process; 0 if never.
const LAST_RUN: &str = "
select coalesce((select extract(epoch from done_at) from postrider.leader where name = $1), 0)::float8";

/// Attempts of the last hour.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct Rates {
    pub first: i64,
    pub first_attached: i64,
    pub retries: i64,
    pub retries_attached: i64,
    pub permanent: i64,
}

/// Recent N2.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct RecentN2 {
    pub average: f64,
    pub forced: i64,
}

pub(crate) async fn rates(pool: &PgPool) -> Result<Rates, sqlx::Error> {
    sqlx::query_as(RATES).fetch_one(pool).await
}

/// The number of rows and artifacts.
pub(crate) async fn depth(pool: &PgPool) -> Result<(i64, i64), sqlx::Error> {
    sqlx::query_as(DEPTH).fetch_one(pool).await
}

pub(crate) async fn n2(pool: &PgPool) -> Result<RecentN2, sqlx::Error> {
    sqlx::query_as(N2).fetch_one(pool).await
}

pub(crate) async fn last_run(pool: &PgPool) -> Result<f64, sqlx::Error> {
    sqlx::query_scalar(LAST_RUN)
        .bind(scheduler::NAME)
        .fetch_one(pool)
        .await
}
