//! What clients are shown.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{AttachmentStatus, EvidenceStatus, RetryStatus};

/// How far a job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = FileJobStatus)]
pub enum JobStatus {
    /// Some artifact was not tried yet: N1 is still to come.
    Processing,
    /// N1 is out; retries are under way.
    Retrying,
    /// Finished: nothing of it changes any more.
    Completed,
}

/// A job in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FileJobSummary)]
pub struct JobSummary {
    /// Its id.
    pub file_job_id: Uuid,
    /// Whose evidence it is.
    pub merchant_id: String,
    /// How far it has come.
    pub status: JobStatus,
    /// How many artifacts it has.
    pub total: i64,
    /// How many are attached.
    pub attached: i64,
    /// How many failed at their last attempt.
    pub failed: i64,
    /// How many were not tried yet.
    pub pending: i64,
    /// When it was handed in.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When N1 was sent.
    #[serde(with = "time::serde::rfc3339::option")]
    pub n1_sent_at: Option<OffsetDateTime>,
    /// When N2 was sent.
    #[serde(with = "time::serde::rfc3339::option")]
    pub n2_sent_at: Option<OffsetDateTime>,
}

/// A job with its rows, one page of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = FileJobView)]
pub struct JobView {
    /// What a listing shows.
    #[serde(flatten)]
    pub job: JobSummary,
    /// How many rows it has in all.
    pub row_count: i32,
    /// How many artifacts failed, by code.
    pub errors: Value,
    /// The notifications that were made.
    pub notifications: Vec<NotificationView>,
    /// The rows of this page.
    pub rows: Vec<RowView>,
    /// Send this as `cursor` to get more rows; absent when these are the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// N1 or N2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NotificationView {
    /// Its id, which the receiver gets as `webhook-id`.
    pub id: Uuid,
    /// `evidence.n1` or `evidence.n2`.
    pub kind: String,
    /// What it says.
    #[schema(value_type = Object)]
    pub body: Value,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When the receiver took it.
    #[serde(with = "time::serde::rfc3339::option")]
    pub delivered_at: Option<OffsetDateTime>,
}

/// A row with its artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RowView {
    /// Its id.
    pub file_job_row_id: Uuid,
    /// Its place in the job, from 1.
    pub row_number: i32,
    /// The case.
    pub case_id: Uuid,
    /// The merchant's own name for it.
    pub reference: Option<String>,
    /// What its artifacts add up to.
    pub evidence_status: EvidenceStatus,
    /// How many artifacts it has.
    pub evidence_count: i32,
    /// How many are attached.
    pub evidence_attached_count: i32,
    /// How many failed at their last attempt.
    pub evidence_failed_count: i32,
    /// When the last of them was attached.
    #[serde(with = "time::serde::rfc3339::option")]
    pub evidence_completed_at: Option<OffsetDateTime>,
    /// The artifacts, in their order.
    pub artifacts: Vec<ArtifactView>,
}

/// One artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::FromRow)]
pub struct ArtifactView {
    /// Its id, which the Case API gets.
    #[sqlx(rename = "id")]
    pub artifact_id: Uuid,
    /// The name that it is attached under.
    pub file_name: String,
    /// Its media type.
    pub file_type: Option<String>,
    /// Its size, if it is known.
    pub file_size_bytes: Option<i64>,
    /// Its key in the store.
    pub s3_key: String,
    /// Has the case got it?
    pub attachment_status: AttachmentStatus,
    /// Where it stands with its retries.
    pub retry_status: RetryStatus,
    /// All attempts.
    pub attempt_count: i32,
    /// Attempts after the first.
    pub retry_count: i32,
    /// Why the last attempt failed.
    pub attachment_error_code: Option<String>,
    /// What it said.
    pub attachment_error_message: Option<String>,
    /// What kind of failure that is.
    pub error_category: Option<String>,
    /// Will it be tried again?
    pub is_retryable: bool,
    /// Not before this.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_retry_at: Option<OffsetDateTime>,
    /// When it was last tried again.
    #[serde(with = "time::serde::rfc3339::option")]
    pub last_retry_at: Option<OffsetDateTime>,
    /// When it was attached.
    #[serde(with = "time::serde::rfc3339::option")]
    pub attached_at: Option<OffsetDateTime>,
}
