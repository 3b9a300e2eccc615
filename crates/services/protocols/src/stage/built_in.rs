//! The stages that need no service: rules for the language of protocols, and a vocabulary.

use std::sync::Arc;

use futures_util::{FutureExt, future::BoxFuture};
use postrider::failure::{Category, Failure};

use super::{Request, Stage, Trouble, extraction, grounding, vocabulary::Vocabulary};
use crate::model::Criterion;

/// Finds the eligibility criteria by their headings and numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltInExtraction;

impl Stage for BuiltInExtraction {
    fn name(&self) -> &'static str {
        "built-in"
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn run(&self, request: Request) -> BoxFuture<'_, Result<Vec<Criterion>, Trouble>> {
        compute(move || extraction::criteria(&request.text))
    }
}

/// Finds terms of a vocabulary.
#[derive(Debug, Clone)]
pub struct BuiltInGrounding(Arc<Vocabulary>);

impl BuiltInGrounding {
    /// With this vocabulary.
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

    fn run(&self, request: Request) -> BoxFuture<'_, Result<Vec<Criterion>, Trouble>> {
        let vocabulary = Arc::clone(&self.0);
        compute(move || {
            let mut criteria = request.criteria.unwrap_or_default();
            grounding::ground(&vocabulary, &mut criteria);
            criteria
        })
    }
}

/// A long text must not hold up a thread that others wait for.
fn compute(
    work: impl FnOnce() -> Vec<Criterion> + Send + 'static,
) -> BoxFuture<'static, Result<Vec<Criterion>, Trouble>> {
    async move {
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            let failure = Failure::with_category("STAGE_BROKEN", Category::System, error);
            Trouble::transient(failure)
        })
    }
    .boxed()
}
