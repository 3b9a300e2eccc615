//! Operations: the functions behind the operators' API, the console and the command line, so that all three agree.
//!
//! [`overview`]: queues, workers, leaders and breakers. [`dead`]: dead letters, redrive and archive; [`filter`] selects them.
//! [`timeline`]: the history of an id.

pub mod dead;
pub mod filter;
pub mod overview;
mod runner;
pub mod timeline;

mod http;

use std::sync::Arc;

use postrider::{dead_letter::DeadLetters, wake::Waker};
use sqlx::PgPool;

pub use http::{codes, routes};
use overview::{Overview, OverviewCache};
pub use runner::run as run_operations;

use crate::services::{self, Apis};

/// Operations on one database. Cheap to clone.
#[derive(Clone)]
pub struct Operate {
    pool: PgPool,
    letters: Arc<DeadLetters>,
    cache: Arc<OverviewCache>,
    waker: Waker,
    apis: Arc<Apis>,
}

impl Operate {
    /// Operations on this database and the wallet's own, if it has one. Call it inside a tokio runtime.
    pub fn new(pool: PgPool, wallet: Option<PgPool>, apis: Arc<Apis>) -> postrider::Result<Self> {
        Ok(Self {
            waker: Waker::new(pool.clone()),
            pool,
            letters: Arc::new(services::dead_letters(wallet)?),
            cache: Arc::default(),
            apis,
        })
    }

    /// The overview, at most about a second old: concurrent callers share one query.
    pub async fn overview(&self) -> postrider::Result<Arc<Overview>> {
        self.cache.get(&self.pool).await
    }
}
