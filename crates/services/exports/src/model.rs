//! States and values of export jobs; pure.

mod request;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

pub use request::{Input, Invalid, JobRequest, MOST_INPUTS, Submission};

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
#[sqlx(type_name = "text", rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// Accepted; nothing of it was begun.
    Submitted,
    /// Its inputs are worked on.
    Running,
    /// Every input has its file.
    Completed,
    /// An input is in the DLQ; what was not begun is not begun any more.
    Failed,
    /// Called off.
    Cancelled,
}

impl JobStatus {
    /// May inputs of such a job be begun?
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Submitted | Self::Running => true,
            Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }

    /// The name as it is stored and shown.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "SUBMITTED",
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// Where an input stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InputStatus {
    /// Waits for its first attempt.
    Pending,
    /// A worker has it.
    Running,
    /// Its file is there.
    Succeeded,
    /// Waits for another attempt.
    RetryWait,
    /// Given up.
    Dlq,
}

/// The answer to a request that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// The job's key.
    #[schema(example = "J20260110_000777")]
    pub job_id: String,
    /// `SUBMITTED`.
    pub status: JobStatus,
}

/// How far a job has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::FromRow)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The job's key.
    #[schema(example = "J20260110_000777")]
    #[sqlx(rename = "job_key")]
    pub job_id: String,
    /// Where it stands.
    pub status: JobStatus,
    /// How many inputs it has.
    pub total: i64,
    /// How many wait, for their first attempt or for another one.
    pub pending: i64,
    /// How many of those wait for another attempt.
    pub retrying: i64,
    /// How many are worked on.
    pub running: i64,
    /// How many have their file.
    pub done: i64,
    /// How many were given up.
    pub failed: i64,
    /// How many files were made for this job.
    pub files_generated: i64,
    /// How many were there already.
    pub files_reused: i64,
    /// Why the job failed; null unless it did.
    pub error_message: Option<String>,
}

/// One event of a job's stream, as server-sent events have them.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes")]
pub struct ProgressEvent {
    /// `progress`, or `end` for the last one.
    event: String,
    /// The job's numbers as JSON, the same as the job itself shows.
    data: String,
}

/// A job with its files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobView {
    /// How far it has come.
    #[serde(flatten)]
    pub progress: Progress,
    /// Every finished input with its file, in the order of the request.
    pub data_content: Vec<FileView>,
}

/// A finished input and where its file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::FromRow)]
#[serde(rename_all = "camelCase")]
pub struct FileView {
    /// Which index.
    #[schema(example = "ABC")]
    pub index_key: String,
    /// Which day, as yyyymmdd.
    #[schema(example = 20_240_202)]
    pub effective_date: i32,
    /// As of which moment of that day.
    #[serde(rename = "asofindicator")]
    #[schema(example = "CLS")]
    pub asof_indicator: String,
    /// The file's absolute address; a reused one is in the folder of the job that made it.
    pub s3_path: String,
}

/// A job in the listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::FromRow)]
#[serde(rename_all = "camelCase")]
pub struct JobSummary {
    /// The job's key.
    #[sqlx(rename = "job_key")]
    pub job_id: String,
    /// Where it stands.
    pub status: JobStatus,
    /// How many inputs it has.
    #[sqlx(rename = "total_inputs")]
    pub total: i32,
    /// When it was accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub requested_at: OffsetDateTime,
    /// When its first input was begun.
    #[serde(with = "time::serde::rfc3339::option")]
    pub started_at: Option<OffsetDateTime>,
    /// When it was completed, failed or cancelled.
    #[serde(with = "time::serde::rfc3339::option")]
    pub completed_at: Option<OffsetDateTime>,
    /// Why it failed.
    pub error_message: Option<String>,
}

/// An input in a job's listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::FromRow)]
#[serde(rename_all = "camelCase")]
pub struct InputView {
    /// Which index.
    pub index_key: String,
    /// Which day, as yyyymmdd.
    pub effective_date: i32,
    /// As of which moment of that day.
    #[serde(rename = "asofindicator")]
    pub asof_indicator: String,
    /// Where it stands.
    pub status: InputStatus,
    /// Attempts that failed.
    pub attempt_count: i32,
    /// Was the file there already?
    pub is_reused: bool,
    /// Where the file is, once it is.
    pub s3_path: Option<String>,
    /// The last failure's code.
    pub error_code: Option<String>,
    /// What it said.
    pub error_message: Option<String>,
}
