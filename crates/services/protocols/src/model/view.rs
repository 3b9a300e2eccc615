//! Requests and responses of the API.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Criterion, Status};

/// A protocol that was just accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Uploaded {
    /// Its id.
    pub id: Uuid,
    /// Its title.
    pub title: String,
    /// `uploaded`.
    pub status: Status,
}

/// A protocol in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Its id.
    pub id: Uuid,
    /// Its title.
    pub title: String,
    /// Its state.
    pub status: Status,
    /// Why it failed.
    pub error_reason: Option<String>,
    /// When it was uploaded.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// A protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProtocolView {
    /// Its id.
    pub id: Uuid,
    /// Its title.
    pub title: String,
    /// Its state.
    pub status: Status,
    /// The number of this pass through the pipeline.
    #[serde(rename = "try")]
    pub try_no: i32,
    /// Why it failed.
    pub error_reason: Option<String>,
    /// Details: `document`, `extraction`, `grounding`, `review`, and after a failure `error` and `last_failure`.
    #[schema(value_type = Object)]
    pub metadata: Value,
    /// The criteria found so far.
    pub criteria: Vec<Criterion>,
    /// When it was uploaded.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// The answer to a retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RetryQueued {
    /// `retry_queued`.
    #[schema(example = "retry_queued")]
    pub status: String,
    /// The protocol.
    pub protocol_id: Uuid,
}

/// What a reviewer decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The criteria are correct.
    Approve,
    /// They are wrong: start again from extraction.
    Reject,
}

/// A review.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReviewRequest {
    /// Approve or reject.
    pub decision: Decision,
    /// Why; a rejection needs one.
    #[serde(default)]
    pub reason: Option<String>,
}
