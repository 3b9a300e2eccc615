//! What needs no lease is finished before anything is claimed.
//!
//! A lease keeps two workers from doing the same thing twice. Where nothing is done but a change of the item itself, one
//! guarded statement is as safe, and saves the claim and the settling of each item. It is a matter of speed alone: what is
//! left is claimed as ever.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;

use super::settler::count_settled;
use crate::catch_panic::catch_panic;
use crate::lease::{Outcome, WorkTable};
use crate::{Error, Result};

type Go = dyn Fn() -> BoxFuture<'static, Result<u64>> + Send + Sync;

#[derive(Clone)]
pub(super) struct FastPath(Arc<Go>);

impl FastPath {
    pub fn new<F>(go: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<u64>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(go())))
    }

    /// Finishes what it can; an error keeps nobody from claiming.
    pub async fn go(&self, table: &'static WorkTable) {
        match catch_panic("going ahead of the claims", self.0()).await {
            Ok(0) | Err(Error::Panicked(_)) => {}
            Ok(items) => count_settled(table, &Outcome::Done, items),
            Err(error) => {
                tracing::warn!(%error, table = table.name, "nothing was finished ahead of the claims");
            }
        }
    }
}

impl fmt::Debug for FastPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FastPath")
    }
}
