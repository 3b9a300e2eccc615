//! The attempt log's retention.

use std::time::Duration;

use sqlx::PgPool;

/// Attempts that are older than the retention, of jobs that have been closed for as long. Index: attach_attempt_at.
const PRUNE: &str = "
delete from evidence.attach_attempt where ctid = any (array(
    select t.ctid from evidence.attach_attempt t
    join evidence.file_job_artifact a on a.id = t.artifact_id
    join evidence.file_job j on j.id = a.file_job_id
    where t.at < now() - make_interval(secs => $1) and j.closed_at < now() - make_interval(secs => $1)
    limit $2))";

/// Deletes up to `limit` attempts; returns their number.
pub(crate) async fn prune(pool: &PgPool, keep: Duration, limit: u32) -> Result<u64, sqlx::Error> {
    let done = sqlx::query(PRUNE)
        .bind(keep.as_secs_f64())
        .bind(i64::from(limit))
        .execute(pool)
        .await?;
    Ok(done.rows_affected())
}
