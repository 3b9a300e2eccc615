//! What operators see and do, whatever door they come through: the API, the console and the command line use these
//! functions, so that all say the same.
//!
//! [`overview`]: how everything is.

pub mod overview;

mod http;

use std::sync::Arc;

use sqlx::PgPool;

pub use http::routes;
use overview::{Overview, Watch};

/// The operators' functions over one database. Cheap to clone.
#[derive(Clone)]
pub struct Operate {
    pool: PgPool,
    watch: Arc<Watch>,
}

impl Operate {
    /// The functions, over this database.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            watch: Arc::default(),
        }
    }

    /// How everything is, at most about a second old: many who look cost one look.
    pub async fn overview(&self) -> postrider_engine::Result<Arc<Overview>> {
        self.watch.look(&self.pool).await
    }
}
