//! What the gauges show.

use sqlx::PgPool;

/// Attempts of the last hour. Index: attach_attempt_at.
const RATES: &str = "
select count(*) filter (where attempt = 1) as first,
       count(*) filter (where attempt = 1 and outcome = 'ATTACHED') as first_attached,
       count(*) filter (where attempt > 1) as retries,
       count(*) filter (where attempt > 1 and outcome = 'ATTACHED') as retries_attached
from evidence.attach_attempt where at > now() - interval '1 hour' and outcome <> 'LOST'";

/// What waits for a retry or is being retried. Index: idx_artifact_retry_scan.
const DEPTH: &str = "
select count(distinct a.file_job_row_id), count(*)
from evidence.file_job_artifact a join evidence.file_job j on j.id = a.file_job_id
where a.is_retryable and j.closed_at is null";

/// How attempts went lately.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct Rates {
    pub first: i64,
    pub first_attached: i64,
    pub retries: i64,
    pub retries_attached: i64,
}

pub(crate) async fn rates(pool: &PgPool) -> Result<Rates, sqlx::Error> {
    sqlx::query_as(RATES).fetch_one(pool).await
}

/// Rows and artifacts.
pub(crate) async fn depth(pool: &PgPool) -> Result<(i64, i64), sqlx::Error> {
    sqlx::query_as(DEPTH).fetch_one(pool).await
}
