//! Reads jobs for clients, in a fixed number of statements.

use std::collections::HashMap;

use serde_json::Value;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::{
    ArtifactView, EvidenceStatus, JobStatus, JobSummary, NotificationView, RowView,
};

/// Index: the primary key, backwards; ids are ordered by time. Counts come from the rows, not the artifacts.
const JOBS: &str = "
select j.id, j.merchant_id, j.artifact_count, j.row_count, j.created_at, j.n1_sent_at, j.n2_sent_at, j.closed_at,
       c.attached, c.failed
from evidence.file_job j
join lateral (select coalesce(sum(r.evidence_attached_count), 0) as attached,
                     coalesce(sum(r.evidence_failed_count), 0) as failed
              from evidence.file_job_row r where r.file_job_id = j.id) c on true
where ($1::uuid is null or j.id < $1)
  and ($2::text is null or j.merchant_id = $2)
  and ($3::text is null or $3 = case when j.closed_at is not null then 'COMPLETED'
                                     when j.n1_sent_at is not null then 'RETRYING' else 'PROCESSING' end)
  and ($4::uuid is null or j.id = $4)
order by j.id desc limit $5";

const ROWS: &str = "
select id, row_number, case_id, reference, evidence_status::text, evidence_count, evidence_attached_count,
       evidence_failed_count, evidence_completed_at
from evidence.file_job_row where file_job_id = $1 and row_number > $2 order by row_number limit $3";

const ARTIFACTS: &str = "
select file_job_row_id, id, file_name, file_type, file_size_bytes, s3_key, attachment_status::text, retry_status::text,
       attempt_count, retry_count, attachment_error_code, attachment_error_message, error_category, is_retryable,
       next_retry_at, last_retry_at, attached_at
from evidence.file_job_artifact where file_job_row_id = any($1) order by file_job_row_id, artifact_number";

const ERRORS: &str = "
select coalesce(jsonb_object_agg(e.code, e.many), '{}')
from (select attachment_error_code as code, count(*) as many from evidence.file_job_artifact
      where file_job_id = $1 and attachment_error_code is not null group by 1) e";

const NOTIFICATIONS: &str = "
select id, kind, body, created_at, delivered_at from evidence.notification where file_job_id = $1 order by created_at, kind";

#[derive(sqlx::FromRow)]
struct Job {
    id: Uuid,
    merchant_id: String,
    artifact_count: i32,
    row_count: i32,
    created_at: OffsetDateTime,
    n1_sent_at: Option<OffsetDateTime>,
    n2_sent_at: Option<OffsetDateTime>,
    closed_at: Option<OffsetDateTime>,
    attached: i64,
    failed: i64,
}

impl Job {
    fn summary(self) -> JobSummary {
        let total = i64::from(self.artifact_count);
        JobSummary {
            file_job_id: self.id,
            merchant_id: self.merchant_id,
            status: match (self.closed_at, self.n1_sent_at) {
                (Some(_), _) => JobStatus::Completed,
                (None, Some(_)) => JobStatus::Retrying,
                (None, None) => JobStatus::Processing,
            },
            total,
            attached: self.attached,
            failed: self.failed,
            pending: total - self.attached - self.failed,
            created_at: self.created_at,
            n1_sent_at: self.n1_sent_at,
            n2_sent_at: self.n2_sent_at,
        }
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    row_number: i32,
    case_id: Uuid,
    reference: Option<String>,
    evidence_status: EvidenceStatus,
    evidence_count: i32,
    evidence_attached_count: i32,
    evidence_failed_count: i32,
    evidence_completed_at: Option<OffsetDateTime>,
}

#[derive(sqlx::FromRow)]
struct ArtifactOfRow {
    file_job_row_id: Uuid,
    #[sqlx(flatten)]
    artifact: ArtifactView,
}

/// Which jobs are listed.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Filter {
    /// Of this merchant.
    pub merchant: Option<String>,
    /// With this status.
    pub status: Option<JobStatus>,
}

/// Jobs before this one, newest first.
pub(crate) async fn list(
    pool: &PgPool,
    filter: &Filter,
    before: Option<Uuid>,
    limit: i64,
) -> Result<Vec<JobSummary>, sqlx::Error> {
    let status = filter.status.map(|status| match status {
        JobStatus::Processing => "PROCESSING",
        JobStatus::Retrying => "RETRYING",
        JobStatus::Completed => "COMPLETED",
    });
    let jobs: Vec<Job> = sqlx::query_as(JOBS)
        .bind(before)
        .bind(&filter.merchant)
        .bind(status)
        .bind(None::<Uuid>)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    Ok(jobs.into_iter().map(Job::summary).collect())
}

/// A job and its number of rows.
pub(crate) async fn job(pool: &PgPool, id: Uuid) -> Result<Option<(JobSummary, i32)>, sqlx::Error> {
    let job: Option<Job> = sqlx::query_as(JOBS)
        .bind(None::<Uuid>)
        .bind(None::<&str>)
        .bind(None::<&str>)
        .bind(id)
        .bind(1_i64)
        .fetch_optional(pool)
        .await?;
    Ok(job.map(|job| {
        let rows = job.row_count;
        (job.summary(), rows)
    }))
}

pub(crate) async fn errors(pool: &PgPool, job: Uuid) -> Result<Value, sqlx::Error> {
    sqlx::query_scalar(ERRORS).bind(job).fetch_one(pool).await
}

pub(crate) async fn notifications(
    pool: &PgPool,
    job: Uuid,
) -> Result<Vec<NotificationView>, sqlx::Error> {
    let rows: Vec<(Uuid, String, Value, OffsetDateTime, Option<OffsetDateTime>)> =
        sqlx::query_as(NOTIFICATIONS)
            .bind(job)
            .fetch_all(pool)
            .await?;
    let view = |(id, kind, body, created_at, delivered_at)| NotificationView {
        id,
        kind,
        body,
        created_at,
        delivered_at,
    };
    Ok(rows.into_iter().map(view).collect())
}

/// Rows after this number, with their artifacts.
pub(crate) async fn rows(
    pool: &PgPool,
    job: Uuid,
    after: i32,
    limit: i64,
) -> Result<Vec<RowView>, sqlx::Error> {
    let rows: Vec<Row> = sqlx::query_as(ROWS)
        .bind(job)
        .bind(after)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let artifacts: Vec<ArtifactOfRow> =
        sqlx::query_as(ARTIFACTS).bind(&ids).fetch_all(pool).await?;
    let mut by_row: HashMap<Uuid, Vec<ArtifactView>> = HashMap::with_capacity(rows.len());
    for of_row in artifacts {
        let list = by_row.entry(of_row.file_job_row_id).or_default();
        list.push(of_row.artifact);
    }
    Ok(rows
        .into_iter()
        .map(|row| RowView {
            artifacts: by_row.remove(&row.id).unwrap_or_default(),
            file_job_row_id: row.id,
            row_number: row.row_number,
            case_id: row.case_id,
            reference: row.reference,
            evidence_status: row.evidence_status,
            evidence_count: row.evidence_count,
            evidence_attached_count: row.evidence_attached_count,
            evidence_failed_count: row.evidence_failed_count,
            evidence_completed_at: row.evidence_completed_at,
        })
        .collect())
}
