//! How everything is: what waits, what was done, what was given up, and who is at work.
//!
//! Everything comes from the database, so every process can answer for all of them. An answer is kept for a moment and
//! shared; of what was done only the latest piece is counted anew.

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

/// An answer is good for so long, and longer where it takes long to find.
const FRESH: Duration = Duration::from_secs(1);
const COST_FACTOR: u32 = 10;

/// How far back the charts go.
const WINDOW_SECONDS: i64 = 15 * 60;

/// What ended this long ago has committed, as good as certainly, and is not counted again.
const SETTLED_SECONDS: i64 = 10;

/// Looks at the database for everybody in this process.
pub struct Watch {
    survey: QueueStats,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    latest: Option<(Arc<Overview>, Instant)>,
    tallies: Tallies,
    /// Up to here (in seconds since 1970) nothing is counted again.
    counted: i64,
}

/// By the beginning of the piece of time, work table and what it was.
type Tallies = BTreeMap<(i64, String, String), i64>;

impl Default for Watch {
    /// Over all work tables.
    fn default() -> Self {
        Self {
            survey: QueueStats::new(services::work_tables()),
            memory: Mutex::default(),
        }
    }
}

impl Watch {
    /// The latest answer, or a new one. Who comes while somebody looks gets what that one finds.
    pub async fn look(&self, pool: &PgPool) -> Result<Arc<Overview>> {
        let mut memory = self.memory.lock().await;
        if let Some((overview, until)) = &memory.latest
            && Instant::now() < *until
        {
            return Ok(Arc::clone(overview));
        }
        let begun = Instant::now();
        let overview = Arc::new(collect::collect(&self.survey, pool, &mut memory).await?);
        let fresh = FRESH.max(begun.elapsed() * COST_FACTOR);
        memory.latest = Some((Arc::clone(&overview), Instant::now() + fresh));
        Ok(overview)
    }
}
