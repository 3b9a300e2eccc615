//! Runs ANALYZE on tables that outgrew their statistics, under a leader lease.

use std::time::Duration;

use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};
use postrider_inspect::analyze;

use super::tasks::Resources;

/// The longest that the planner uses a small table's plan after the table has grown.
const INTERVAL: Duration = Duration::from_secs(5);

/// The periodic task, until the stop.
pub(super) fn task(
    resources: &Resources,
) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
    let pool = resources.pool.clone();
    let task = move |_| {
        let pool = pool.clone();
        async move {
            let tables = analyze::refresh(&pool).await?;
            if !tables.is_empty() {
                tracing::debug!(?tables, "analyzed tables that have grown");
            }
            Ok::<(), Error>(())
        }
    };
    run_periodic(
        resources.pool.clone(),
        Periodic::new("statistics", INTERVAL),
        resources.stop.clone(),
        task,
    )
}
