//! The events and the topics that they travel on.
//!
//! An attach event names all artifacts of its row; which of them are acted on is the worker's to decide, by what the
//! database says when it gets there. So an event that comes twice, late or to two workers does no harm.

use postrider::{Result, outbox::Message};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

/// First attempts.
pub const REQUESTS: &str = "evidence.attach.requests";
/// Retries.
pub const RETRIES: &str = "evidence.failed.requests";
/// What came of each artifact.
pub const RESULTS: &str = "evidence.attach.results";
/// N1 and N2 on their way to the receiver.
pub const NOTIFICATIONS: &str = "evidence.notifications";

/// The version of these forms.
pub const SCHEMA_VERSION: u32 = 1;

/// What an attach event asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttachType {
    /// The first attempt of every artifact.
    #[serde(rename = "EVIDENCE_ATTACH")]
    Initial,
    /// Another attempt of those that failed and are due.
    #[serde(rename = "EVIDENCE_ATTACH_RETRY")]
    Retry,
}

/// A row's files are to be attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachEvent {
    /// Its own identity: a retry is a new event, never an old one again.
    pub event_id: Uuid,
    /// First or again.
    pub event_type: AttachType,
    /// When it was put.
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
    /// Why it is tried again.
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
    /// On its topic.
    pub fn message(&self) -> Result<Message> {
        match self.event_type {
            AttachType::Initial => Message::new(REQUESTS, self),
            AttachType::Retry => Message::new(RETRIES, self),
        }
    }
}

/// What came of one attempt at one artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultEvent {
    /// Its own identity.
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
    /// Which attempt it was.
    pub attempt_count: i32,
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
}

/// A notification is ready: the whole of it is in the database under this id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationEvent {
    /// Which.
    pub notification_id: Uuid,
}
