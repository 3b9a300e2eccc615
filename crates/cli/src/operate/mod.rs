//! What operators see and do, whatever door they come through: the API, the console and the command line use these
//! functions, so that all say the same.
//!
//! [`overview`]: how everything is. [`dead`]: what was given up, and what to do with it; [`filter`] says which.
//! [`trace`]: everything that is known under an id.

pub mod dead;
pub mod filter;
pub mod overview;
mod runner;
pub mod trace;

mod http;

use std::sync::Arc;

use postrider::{dead_letter::DeadLetters, wake::Waker};
use sqlx::PgPool;

pub use http::{codes, routes};
use overview::{Overview, Watch};
pub use runner::run as run_operations;

use crate::services::{self, Apis};

/// The operators' functions over one database. Cheap to clone.
#[derive(Clone)]
pub struct Operate {
    pool: PgPool,
    letters: Arc<DeadLetters>,
    watch: Arc<Watch>,
    waker: Waker,
    apis: Arc<Apis>,
}

impl Operate {
    /// The functions, over this database and the wallet's own if there is one; the services tell what they know of an id. Call
    /// it inside a tokio runtime.
    pub fn new(pool: PgPool, wallet: Option<PgPool>, apis: Arc<Apis>) -> postrider::Result<Self> {
        Ok(Self {
            waker: Waker::new(pool.clone()),
            pool,
            letters: Arc::new(services::dead_letters(wallet)?),
            watch: Arc::default(),
            apis,
        })
    }

    /// How everything is, at most about a second old: many who look cost one look.
    pub async fn overview(&self) -> postrider::Result<Arc<Overview>> {
        self.watch.look(&self.pool).await
    }
}
