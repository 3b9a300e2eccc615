//! Finishes items that need no lease before anything is claimed.
//!
//! A lease keeps two workers from doing the same work twice. If nothing but the item's own row changes, one guarded
//! statement is as safe and saves a claim and a settlement per item. This is an optimisation only: what it leaves is
//! claimed as usual.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;

use super::settler::count_settled;
use crate::internal::catch_panic;
use crate::lease::{Outcome, WorkTable};
use crate::{Error, Result};

type Run = dyn Fn() -> BoxFuture<'static, Result<u64>> + Send + Sync;

#[derive(Clone)]
pub(super) struct FastPath(Arc<Run>);

impl FastPath {
    pub fn new<F>(run: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<u64>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(run())))
    }

    /// Finishes what it can. An error doesn't stop the claims.
    pub async fn run(&self, table: &'static WorkTable) {
        match catch_panic("the fast path", self.0()).await {
            Ok(0) | Err(Error::Panicked(_)) => {}
            Ok(items) => count_settled(table, &Outcome::Done, items),
            Err(error) => {
                tracing::warn!(%error, table = table.name, "the fast path failed; its items are claimed instead");
            }
        }
    }
}

impl fmt::Debug for FastPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FastPath")
    }
}
