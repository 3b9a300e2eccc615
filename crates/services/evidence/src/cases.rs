//! The Case API: files are put under their case and artifact ids, once each.
//!
//! The artifact's id is the same at every attempt, so a file that arrived although its response was lost isn't attached a
//! second time: the API responds with 409 or the same 2xx again, and both count as attached. For an API whose PUT isn't
//! idempotent, the worker looks the artifact up before it repeats a call.

mod http;
mod paper;

use std::time::Duration;

use bytes::Bytes;
use futures_util::{future::BoxFuture, stream::BoxStream};
use postrider::breaker;
use uuid::Uuid;

pub use http::HttpCases;
pub use paper::PaperCases;

use crate::model::Code;

/// A Case API.
pub trait CaseApi: Send + Sync + 'static {
    /// Its name in logs.
    fn name(&self) -> &'static str;

    /// Attaches a file to a case. Succeeds if the case has it, from now or before.
    fn attach(&self, upload: Upload) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Whether the case has this artifact.
    fn look_up(&self, case: Uuid, artifact: Uuid) -> BoxFuture<'_, Result<bool, Refusal>>;
}

/// A file to attach.
#[derive(Debug)]
pub struct Upload {
    /// The case.
    pub case_id: Uuid,
    /// The artifact; the same at every attempt.
    pub artifact_id: Uuid,
    /// The name to attach it under.
    pub file_name: String,
    /// Its media type.
    pub file_type: Option<String>,
    /// SHA-256 of its content, in hexadecimal.
    pub sha256: String,
    /// Size of its content.
    pub size: u64,
    /// The content.
    pub content: Content,
}

/// The content of a file.
pub enum Content {
    /// In memory.
    Whole(Bytes),
    /// In chunks.
    Pieces(BoxStream<'static, Result<Bytes, std::io::Error>>),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Pieces(_) => f.write_str("pieces"),
        }
    }
}

/// A call that attached nothing, as far as is known.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Refusal {
    /// The error code.
    pub code: Code,
    /// The error message.
    pub message: String,
    /// When to retry, if the API said so.
    pub retry_after: Option<Duration>,
    /// What it says about the API's availability.
    pub shows: breaker::Outcome,
}

impl Refusal {
    /// A response other than success.
    #[must_use]
    pub fn status(status: u16, retry_after: Option<Duration>) -> Self {
        Self {
            code: Code::from_status(status),
            message: format!("the Case API responded with status {status}"),
            retry_after,
            shows: breaker::Outcome::from_status(status),
        }
    }

    /// No response at all.
    #[must_use]
    pub fn lost(code: Code, message: impl std::fmt::Display) -> Self {
        Self {
            code,
            message: format!("the Case API did not respond: {message}"),
            retry_after: None,
            shows: breaker::Outcome::Unavailable,
        }
    }
}
