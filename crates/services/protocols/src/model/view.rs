//! What clients send and see.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Criterion, Status};

/// A protocol that was accepted a moment ago.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Uploaded {
    /// Its id from now on.
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
    /// Where it stands.
    pub status: Status,
    /// Why it failed, in words.
    pub error_reason: Option<String>,
    /// When it was uploaded.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
}

/// A protocol with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProtocolView {
    /// Its id.
    pub id: Uuid,
    /// Its title.
    pub title: String,
    /// Where it stands.
    pub status: Status,
    /// Which pass through the pipeline this is.
    #[serde(rename = "try")]
    pub try_no: i32,
    /// Why it failed, in words.
    pub error_reason: Option<String>,
    /// Particulars: `document`, `extraction`, `grounding`, `review`, and after a failure `error` and `last_failure`.
    #[schema(value_type = Object)]
    pub metadata: Value,
    /// What was found so far.
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
    /// Which protocol.
    pub protocol_id: Uuid,
}

/// What a reviewer decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The criteria are right.
    Approve,
    /// They are not: once more from the start.
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
