//! The overview: queue depths, throughput, dead letters, breakers, leaders and workers.
//!
//! Everything comes from the database, so every process can answer for all of them. An overview is cached for a moment
//! and shared; of past intervals only the latest is counted again.

mod collect;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider::Result;
use postrider_inspect::queue_stats::QueueStats;
use sqlx::PgPool;
use tokio::{sync::Mutex, time::Instant};

pub use view::{
    Amount, BreakerView, LeaderView, Overview, Point, ServiceView, Success, TableView, WorkerView,
};

use crate::services;

/// How long an overview is cached; longer if it was expensive.
const CACHE_TTL: Duration = Duration::from_secs(1);
const COST_FACTOR: u32 = 10;

/// How far back the charts go.
const WINDOW_SECONDS: i64 = 15 * 60;

/// What ended this long ago has almost certainly committed and is not counted again.
const SETTLED_SECONDS: i64 = 10;

/// Caches the overview for this process.
pub struct OverviewCache {
    stats: QueueStats,
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    latest: Option<(Arc<Overview>, Instant)>,
    tallies: Tallies,
    /// Intervals before this time (in seconds since 1970) are not counted again.
    counted: i64,
}

/// By start of the interval, work table and outcome.
type Tallies = BTreeMap<(i64, String, String), i64>;

impl Default for OverviewCache {
    /// Over all work tables.
    fn default() -> Self {
        Self {
            stats: QueueStats::new(services::work_tables()),
            state: Mutex::default(),
        }
    }
}

impl OverviewCache {
    /// The cached overview, or a new one. Concurrent callers share one query.
    pub async fn get(&self, pool: &PgPool) -> Result<Arc<Overview>> {
        let mut state = self.state.lock().await;
        if let Some((overview, until)) = &state.latest
            && Instant::now() < *until
        {
            return Ok(Arc::clone(overview));
        }
        let started = Instant::now();
        let overview = Arc::new(collect::collect(&self.stats, pool, &mut state).await?);
        let ttl = CACHE_TTL.max(started.elapsed() * COST_FACTOR);
        state.latest = Some((Arc::clone(&overview), Instant::now() + ttl));
        Ok(overview)
    }
}
