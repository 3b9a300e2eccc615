//! What runs a step of the pipeline: an HTTP service, or a built-in stage.
//!
//! A failure is classified by what it means for the next attempt: permanent (the document or the request is wrong),
//! transient (the stage failed), or unavailable (the service is down). Only transient failures spend attempts.

mod built_in;
pub mod extraction;
pub mod grounding;
mod http;
pub mod vocabulary;

use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider::{
    breaker,
    failure::{Category, Failure},
};
use serde::Serialize;
use uuid::Uuid;

pub use built_in::{BuiltInExtraction, BuiltInGrounding};
pub use http::HttpStage;

use crate::model::Criterion;

/// The request to a stage.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    /// The protocol.
    pub protocol_id: Uuid,
    /// The try.
    #[serde(rename = "try")]
    pub try_no: i32,
    /// The protocol's title.
    pub title: String,
    /// The document's text.
    pub text: String,
    /// The extracted criteria; only for grounding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criteria: Option<Vec<Criterion>>,
}

/// What runs a step.
pub trait Stage: Send + Sync + 'static {
    /// Its name in metadata and logs.
    fn name(&self) -> &'static str;

    /// Is it a service that may be unavailable?
    fn is_remote(&self) -> bool;

    /// Runs the step.
    fn run(&self, request: Request) -> BoxFuture<'_, Result<Vec<Criterion>, StageError>>;
}

/// What a failure means for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// It would fail, too.
    Permanent,
    /// It may succeed; the failed one counts.
    Transient,
    /// It waits until the service is available again, and the failed one does not count.
    Unavailable,
}

/// A failed step.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{failure}")]
pub struct StageError {
    /// What it means for the next attempt.
    pub kind: FailureKind,
    /// The category in `metadata.error` if the protocol becomes a dead letter.
    pub category: &'static str,
    /// Why.
    pub failure: Failure,
    /// When to retry, if the service said so.
    pub retry_after: Option<Duration>,
    /// What it means for the breaker.
    pub breaker: breaker::Outcome,
}

impl StageError {
    /// Another attempt would fail, too.
    #[must_use]
    pub fn permanent(category: &'static str, code: &str, message: impl std::fmt::Display) -> Self {
        Self {
            kind: FailureKind::Permanent,
            category,
            failure: Failure::with_category(code, Category::Data, message),
            retry_after: None,
            breaker: breaker::Outcome::Answered,
        }
    }

    /// Another attempt may succeed.
    #[must_use]
    pub fn transient(failure: Failure) -> Self {
        Self {
            kind: FailureKind::Transient,
            category: PIPELINE_FAILED,
            failure,
            retry_after: None,
            breaker: breaker::Outcome::Answered,
        }
    }

    /// The service is unavailable.
    #[must_use]
    pub fn unavailable(failure: Failure) -> Self {
        Self {
            kind: FailureKind::Unavailable,
            breaker: breaker::Outcome::Unavailable,
            ..Self::transient(failure)
        }
    }

    /// The breaker is open, so the service was not called.
    #[must_use]
    pub fn open(open: &breaker::Open) -> Self {
        let failure = Failure::with_category("BREAKER_OPEN", Category::Network, open);
        Self {
            retry_after: Some(open.retry_after),
            ..Self::unavailable(failure)
        }
    }
}

/// The category of a protocol that is out of attempts.
pub const PIPELINE_FAILED: &str = "pipeline_failed";
