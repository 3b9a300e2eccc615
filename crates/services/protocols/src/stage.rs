//! A step of the pipeline as the worker sees it: a service behind HTTP, or what is built in.
//!
//! What matters about a failure is what it says about the next attempt: never (the document or the request is wrong),
//! perhaps (the stage failed), or not yet (the service is away). Only the second spends attempts.

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

/// What a stage is asked.
#[derive(Debug, Clone, Serialize)]
pub struct Request {
    /// Of which protocol.
    pub protocol_id: Uuid,
    /// In which try.
    #[serde(rename = "try")]
    pub try_no: i32,
    /// The protocol's title.
    pub title: String,
    /// The document's text.
    pub text: String,
    /// What extraction has found; for grounding alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub criteria: Option<Vec<Criterion>>,
}

/// What a step is done by.
pub trait Stage: Send + Sync + 'static {
    /// Its name in metadata and logs.
    fn name(&self) -> &'static str;

    /// Is it another party that may be away?
    fn is_remote(&self) -> bool;

    /// Does the step.
    fn run(&self, request: Request) -> BoxFuture<'_, Result<Vec<Criterion>, Trouble>>;
}

/// What a failure says about the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is no use in one.
    Permanent,
    /// It may succeed; this one counts.
    Transient,
    /// The other side is away: it is waited for.
    Unavailable,
}

/// A step that came to nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{failure}")]
pub struct Trouble {
    /// What it says about the next attempt.
    pub kind: Kind,
    /// The category in `metadata.error`, if the protocol is given up for it.
    pub category: &'static str,
    /// Why.
    pub failure: Failure,
    /// When to come again, if the other side said so.
    pub retry_after: Option<Duration>,
    /// What it shows about the other side.
    pub shows: breaker::Outcome,
}

impl Trouble {
    /// There is no use in another attempt.
    #[must_use]
    pub fn permanent(category: &'static str, code: &str, message: impl std::fmt::Display) -> Self {
        Self {
            kind: Kind::Permanent,
            category,
            failure: Failure::with_category(code, Category::Data, message),
            retry_after: None,
            shows: breaker::Outcome::Answered,
        }
    }

    /// Another attempt may succeed.
    #[must_use]
    pub fn transient(failure: Failure) -> Self {
        Self {
            kind: Kind::Transient,
            category: PIPELINE_FAILED,
            failure,
            retry_after: None,
            shows: breaker::Outcome::Answered,
        }
    }

    /// The other side is away.
    #[must_use]
    pub fn unavailable(failure: Failure) -> Self {
        Self {
            kind: Kind::Unavailable,
            shows: breaker::Outcome::Unavailable,
            ..Self::transient(failure)
        }
    }

    /// The other side is away, and was not even asked.
    #[must_use]
    pub fn open(open: &breaker::Open) -> Self {
        let failure = Failure::with_category("BREAKER_OPEN", Category::Network, open);
        Self {
            retry_after: Some(open.retry_after),
            ..Self::unavailable(failure)
        }
    }
}

/// The category of what was tried in vain.
pub const PIPELINE_FAILED: &str = "pipeline_failed";
