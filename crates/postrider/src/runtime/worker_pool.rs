//! Connections that handlers can't use up.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgPool};
use tokio::sync::OnceCell;

use crate::pool::{self, shares_sessions};
use crate::wake::Hints;

/// As many as ten busy workers use at once: each claims twice at a time and settles; two more serve those that renew, rescue
/// and give signs of life.
const MOST: u32 = 32;

/// One listens, one works.
const LEAST: u32 = 2;

/// After a rush there are more than needed, and all are used in turn: they go by their age.
const LIFETIME: Duration = Duration::from_secs(300);

/// What is done on them is a few statements over and over, each with one good plan: along its index, whatever the server
/// believes of the table just now. So it is made once and kept, and no other is considered. Behind a pooler that hands sessions
/// on the settings would go with them to whoever comes next; there every plan is the server's to choose.
const ONE_PLAN: &str = "
select set_config(name, setting, false) from (values
    ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'),
    ('enable_sort', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off')) s(name, setting)";

/// How long to wait for two connections more, to find out whether there is such a pooler.
const FIND_OUT: Duration = Duration::from_secs(2);

/// The connections on which workers claim, renew and settle, beside the pool that their handlers use. They are made when
/// they are needed. A worker has some of its own unless it is given these: [`super::Worker::with_pool`].
#[derive(Debug, Clone)]
pub struct WorkerPool {
    pool: PgPool,
    /// For all workers on one of the connections.
    hints: Hints,
}

impl WorkerPool {
    /// Connections to where this pool leads, 32 at most. Several workers of one database can share them.
    #[must_use]
    pub fn new(pool: &PgPool) -> Self {
        Self::with_max_connections(pool, MOST)
    }

    /// The same with another limit. Workers go on with fewer than they would like to have, from two on; they take turns.
    #[must_use]
    pub fn with_max_connections(pool: &PgPool, connections: u32) -> Self {
        let options = pool.connect_options();
        let own = Arc::new(OnceCell::new());
        let side = pool::options()
            .max_connections(connections.max(LEAST))
            .max_lifetime(LIFETIME)
            .idle_timeout(LIFETIME)
            .acquire_timeout(Duration::from_secs(5))
            .after_connect({
                let options = Arc::clone(&options);
                move |connection, _| {
                    let (own, options) = (Arc::clone(&own), Arc::clone(&options));
                    Box::pin(async move {
                        let told = own.get_or_try_init(|| has_own_sessions(&options)).await;
                        // Where there is no telling now, this connection does without.
                        if matches!(told, Ok(true)) {
                            connection.execute(ONE_PLAN).await?;
                        }
                        Ok(())
                    })
                }
            })
            .connect_lazy_with(options.as_ref().clone());
        Self {
            hints: Hints::of(side.clone()),
            pool: side,
        }
    }

    pub(super) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(super) const fn hints(&self) -> &Hints {
        &self.hints
    }
}

/// This long, or by chance up to a fifth less. Workers that begin together would else look at the same moments for ever, each on
/// a connection of its own.
pub(super) fn spread(time: Duration) -> Duration {
    time.mul_f64(1.0 - 0.2 * rand::random::<f64>())
}

/// Does each connection have a session to itself? An error if there is no telling: no connection to spare, or a slow server.
async fn has_own_sessions(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let asking = tokio::time::timeout(FIND_OUT, shares_sessions(options));
    let shared = asking.await.map_err(|_| sqlx::Error::PoolTimedOut)??;
    Ok(!shared)
}
