//! Responses to clients.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{AttachmentStatus, EvidenceStatus, RetryStatus};

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = FileJobStatus)]
pub enum JobStatus {
    /// An artifact has not been tried yet; N1 was not sent.
    Processing,
    /// N1 was sent; retries are in progress.
    Retrying,
    /// Finished; it no longer changes.
    Completed,
}

/// A job in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = FileJobSummary)]
pub struct JobSummary {
    /// Its id.
    pub file_job_id: Uuid,
    /// The merchant.
    pub merchant_id: String,
    /// Its status.
    pub status: JobStatus,
    /// Number of artifacts.
    pub total: i64,
    /// Number of attached artifacts.
    pub attached: i64,
    /// Number of artifacts whose last attempt failed.
    pub failed: i64,
    /// Number of artifacts that have not been tried yet.
    pub pending: i64,
    /// When it was submitted.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When N1 was sent.
    #[serde(with = "time::serde::rfc3339::option")]
    pub n1_sent_at: Option<OffsetDateTime>,
    /// When N2 was sent.
    #[serde(with = "time::serde::rfc3339::option")]
    pub n2_sent_at: Option<OffsetDateTime>,
}

/// A job with one page of its rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = FileJobView)]
pub struct JobView {
    /// Its summary.
    #[serde(flatten)]
    pub job: JobSummary,
    /// Total number of rows.
    pub row_count: i32,
    /// Number of failed artifacts, by code.
    pub errors: Value,
    /// Its notifications.
    pub notifications: Vec<NotificationView>,
    /// The rows of this page.
    pub rows: Vec<RowView>,
    /// `cursor` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// N1 or N2.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NotificationView {
    /// Its id, sent as `webhook-id`.
    pub id: Uuid,
    /// `evidence.n1` or `evidence.n2`.
    pub kind: String,
    /// Its content.
    #[schema(value_type = Object)]
    pub body: Value,
    /// When it was created.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was delivered.
    #[serde(with = "time::serde::rfc3339::option")]
    pub delivered_at: Option<OffsetDateTime>,
}

/// A row with its artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RowView {
    /// Its id.
    pub file_job_row_id: Uuid,
    /// Its number in the job, from 1.
    pub row_number: i32,
    /// The case.
    pub case_id: Uuid,
    /// The merchant's reference.
    pub reference: Option<String>,
    /// Its status.
    pub evidence_status: EvidenceStatus,
    /// Number of artifacts.
    pub evidence_count: i32,
    /// Number of attached artifacts.
    pub evidence_attached_count: i32,
    /// Number of artifacts whose last attempt failed.
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
    /// Its id, sent to the Case API.
    #[sqlx(rename = "id")]
    pub artifact_id: Uuid,
    /// Its name in the case.
    pub file_name: String,
    /// Its media type.
    pub file_type: Option<String>,
    /// Its size, if known.
    pub file_size_bytes: Option<i64>,
    /// Its key in the store.
    pub s3_key: String,
    /// Whether it is attached.
    pub attachment_status: AttachmentStatus,
    /// Its retry status.
    pub retry_status: RetryStatus,
    /// Number of attempts.
    pub attempt_count: i32,
    /// Number of attempts after the first.
    pub retry_count: i32,
    /// Error code of the last attempt.
    pub attachment_error_code: Option<String>,
    /// Error message of the last attempt.
    pub attachment_error_message: Option<String>,
    /// Category of the error.
    pub error_category: Option<String>,
    /// Whether it will be retried.
    pub is_retryable: bool,
    /// When the next retry is due.
    #[serde(with = "time::serde::rfc3339::option")]
    pub next_retry_at: Option<OffsetDateTime>,
    /// When it was last retried.
    #[serde(with = "time::serde::rfc3339::option")]
    pub last_retry_at: Option<OffsetDateTime>,
    /// When it was attached.
    #[serde(with = "time::serde::rfc3339::option")]
    pub attached_at: Option<OffsetDateTime>,
}
