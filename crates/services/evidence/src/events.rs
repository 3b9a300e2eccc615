//! Events and their topics.
//!
//! An attach event lists all artifacts of its row; the worker decides by the state of the database which of them to act
//! on. So an event that arrives twice, late or at two workers does no harm.

use postrider::{Result, outbox::Message};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

/// First attempts.
pub const REQUESTS: &str = "evidence.attach.requests";
/// Retries.
pub const RETRIES: &str = "evidence.failed.requests";
/// Results of attempts.
pub const RESULTS: &str = "evidence.attach.results";
/// N1 and N2, to be delivered.
pub const NOTIFICATIONS: &str = "evidence.notifications";

/// The version of these schemas.
pub const SCHEMA_VERSION: u32 = 1;

/// What an attach event requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttachType {
    /// The first attempt of every artifact.
    #[serde(rename = "EVIDENCE_ATTACH")]
    Initial,
    /// Another attempt of failed artifacts that are due.
    #[serde(rename = "EVIDENCE_ATTACH_RETRY")]
    Retry,
}

/// Requests that a row's files are attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachEvent {
    /// The event's id; a retry is a new event.
    pub event_id: Uuid,
    /// First attempt or retry.
    pub event_type: AttachType,
    /// When it was enqueued.
    #[serde(with = "time::serde::rfc3339")]
    pub occurred_at: OffsetDateTime,
    /// The job.
    pub file_job_id: Uuid,
    /// The row.
    pub file_job_row_id: Uuid,
    /// The case.
    pub case_id: Uuid,
    /// All artifacts of the row.
    pub artifacts: Vec<EventArtifact>,
    /// Why it is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_reason: Option<String>,
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
}

/// An artifact in an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventArtifact {
    /// Its id.
    pub artifact_id: Uuid,
    /// The absolute address of its content.
    pub s3_key: String,
}

impl AttachEvent {
    /// The message for its topic.
    pub fn message(&self) -> Result<Message> {
        match self.event_type {
            AttachType::Initial => Message::new(REQUESTS, self),
            AttachType::Retry => Message::new(RETRIES, self),
        }
    }
}

/// The result of one attempt at an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultEvent {
    /// The event's id.
    pub event_id: Uuid,
    /// `EVIDENCE_ARTIFACT_RESULT`.
    pub event_type: String,
    /// When it was recorded.
    #[serde(with = "time::serde::rfc3339")]
    pub occurred_at: OffsetDateTime,
    /// The job.
    pub file_job_id: Uuid,
    /// The row.
    pub file_job_row_id: Uuid,
    /// The case.
    pub case_id: Uuid,
    /// The artifact.
    pub artifact_id: Uuid,
    /// `ATTACHED` or `FAILED`.
    pub status: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The number of the attempt.
    pub attempt_count: i32,
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
}

/// A notification is ready; its content is in the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationEvent {
    /// Its id.
    pub notification_id: Uuid,
}
