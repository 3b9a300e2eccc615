//! The built-in stages: rules for the language of protocols, and a vocabulary.

use std::sync::Arc;

use futures_util::{FutureExt, future::BoxFuture};
use postrider::failure::{Category, Failure};

use super::{Request, Stage, StageError, extraction, grounding, vocabulary::Vocabulary};
use crate::model::Criterion;

/// Finds the eligibility criteria by headings and numbering.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltInExtraction;

impl Stage for BuiltInExtraction {
    fn name(&self) -> &'static str {
        "built-in"
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn run(&self, request: Request) -> BoxFuture<'_, Result<Vec<Criterion>, StageError>> {
        compute(move || extraction::criteria(&request.text))
    }
}

/// Finds terms of a vocabulary.
#[derive(Debug, Clone)]
pub struct BuiltInGrounding(Arc<Vocabulary>);

impl BuiltInGrounding {
    /// Grounds in this vocabulary.
    #[must_use]
    pub fn new(vocabulary: Vocabulary) -> Self {
        Self(Arc::new(vocabulary))
    }
}

impl Stage for BuiltInGrounding {
    fn name(&self) -> &'static str {
        "built-in"
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn run(&self, request: Request) -> BoxFuture<'_, Result<Vec<Criterion>, StageError>> {
        let vocabulary = Arc::clone(&self.0);
        compute(move || {
            let mut criteria = request.criteria.unwrap_or_default();
            grounding::ground(&vocabulary, &mut criteria);
            criteria
        })
    }
}

/// Runs on a blocking thread: a long text must not block the runtime.
fn compute(
    work: impl FnOnce() -> Vec<Criterion> + Send + 'static,
) -> BoxFuture<'static, Result<Vec<Criterion>, StageError>> {
    async move {
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            let failure = Failure::with_category("STAGE_BROKEN", Category::System, error);
            StageError::transient(failure)
        })
    }
    .boxed()
}
