//! Connections reserved for workers, which handlers can't exhaust.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Executor, PgPool};
use tokio::sync::OnceCell;

use crate::internal::pool::{self, shares_sessions};
use crate::wake::hints::Hints;

/// Enough for ten busy workers: each claims twice at a time and settles; two more serve renewal, rescue and heartbeat.
const MAX_CONNECTIONS: u32 = 32;

/// One to listen, one to work.
const MIN_CONNECTIONS: u32 = 2;

/// After a burst there are more connections than needed, and all are used in turn, so they are closed by age.
const LIFETIME: Duration = Duration::from_secs(300);

/// Workers repeat a few statements, each with one good plan: along its index, whatever the statistics say at the
/// moment. So the plan is made once and pinned. Behind a pooler that shares sessions, the settings would leak to other
/// clients; there, the server chooses every plan.
const PIN_PLANS: &str = "
select set_config(name, setting, false) from (values
    ('plan_cache_mode', 'force_generic_plan'), ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'),
    ('enable_sort', 'off'), ('enable_hashjoin', 'off'), ('enable_mergejoin', 'off')) s(name, setting)";

/// How long to wait for the two connections that detect such a pooler.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections on which workers claim, renew and settle, separate from the pool that handlers use. They are opened on
/// demand. A worker has its own unless it shares one: [`Worker::with_pool`](super::Worker::with_pool).
#[derive(Debug, Clone)]
pub struct WorkerPool {
    pool: PgPool,
    /// One connection listens for all workers.
    hints: Hints,
}

impl WorkerPool {
    /// Creates a pool of at most 32 connections to the same database. Several workers can share it.
    #[must_use]
    pub fn new(pool: &PgPool) -> Self {
        Self::with_max_connections(pool, MAX_CONNECTIONS)
    }

    /// Creates a pool with another maximum. Workers get by with two connections and more; they take turns.
    #[must_use]
    pub fn with_max_connections(pool: &PgPool, connections: u32) -> Self {
        let options = pool.connect_options();
        let detected = Arc::new(OnceCell::new());
        let worker_pool = pool::options()
            .max_connections(connections.max(MIN_CONNECTIONS))
            .max_lifetime(LIFETIME)
            .idle_timeout(LIFETIME)
            .acquire_timeout(Duration::from_secs(5))
            .after_connect({
                let options = Arc::clone(&options);
                move |connection, _| {
                    let (detected, options) = (Arc::clone(&detected), Arc::clone(&options));
                    Box::pin(async move {
                        let own = detected
                            .get_or_try_init(|| has_own_sessions(&options))
                            .await;
                        // If detection fails, this connection does without.
                        if matches!(own, Ok(true)) {
                            connection.execute(PIN_PLANS).await?;
                        }
                        Ok(())
                    })
                }
            })
            .connect_lazy_with(options.as_ref().clone());
        Self {
            hints: Hints::new(worker_pool.clone()),
            pool: worker_pool,
        }
    }

    pub(super) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(super) const fn hints(&self) -> &Hints {
        &self.hints
    }
}

/// This duration, minus a random part of up to a fifth. Workers started together would otherwise poll at the same
/// moments forever.
pub(super) fn jittered(time: Duration) -> Duration {
    time.mul_f64(1.0 - 0.2 * rand::random::<f64>())
}

/// Returns whether each connection has a session of its own. Fails if that can't be determined now.
async fn has_own_sessions(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let asking = tokio::time::timeout(PROBE_TIMEOUT, shares_sessions(options));
    let shared = asking.await.map_err(|_| sqlx::Error::PoolTimedOut)??;
    Ok(!shared)
}
