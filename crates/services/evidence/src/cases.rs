//! The Case API, as the worker sees it: files are put under their case and artifact ids, once each.
//!
//! The artifact's id is the same at every attempt, so a file that arrived although nobody heard the answer is not
//! attached a second time: the API says 409, or the same 2xx again, and both count as attached. For an API that can't
//! tell, it is asked before a repeat.

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

/// The way to the cases.
pub trait CaseApi: Send + Sync + 'static {
    /// Its name in logs.
    fn name(&self) -> &'static str;

    /// Attaches a file to a case. Well if the case has it, now or since before.
    fn attach(&self, upload: Upload) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Has the case got this artifact?
    fn look_up(&self, case: Uuid, artifact: Uuid) -> BoxFuture<'_, Result<bool, Refusal>>;
}

/// A file on its way.
#[derive(Debug)]
pub struct Upload {
    /// The case.
    pub case_id: Uuid,
    /// The artifact: the same at every attempt.
    pub artifact_id: Uuid,
    /// The name to attach it under.
    pub file_name: String,
    /// Its media type.
    pub file_type: Option<String>,
    /// Of its content, in hexadecimal.
    pub sha256: String,
    /// Of its content.
    pub size: u64,
    /// The content.
    pub content: Content,
}

/// The content of a file.
pub enum Content {
    /// In memory.
    Whole(Bytes),
    /// Piece by piece.
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

/// A call that attached nothing, as far as we know.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Refusal {
    /// Why.
    pub code: Code,
    /// In words.
    pub message: String,
    /// When to come again, if the API said so.
    pub retry_after: Option<Duration>,
    /// What it shows about the API itself.
    pub shows: breaker::Outcome,
}

impl Refusal {
    /// An answer that is no success.
    #[must_use]
    pub fn status(status: u16, retry_after: Option<Duration>) -> Self {
        Self {
            code: Code::of_status(status),
            message: format!("the Case API answered with status {status}"),
            retry_after,
            shows: breaker::Outcome::from_status(status),
        }
    }

    /// No answer at all.
    #[must_use]
    pub fn lost(code: Code, message: impl std::fmt::Display) -> Self {
        Self {
            code,
            message: format!("the Case API gave no answer: {message}"),
            retry_after: None,
            shows: breaker::Outcome::Unavailable,
        }
    }
}
