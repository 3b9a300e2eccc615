//! Keeping the server's statistics true of tables that grow fast, under a leader lease.

use std::time::Duration;

use postrider::{
    Error, analyze,
    leader::{Periodic, run_periodic},
};

use super::parts::Resources;

/// How often; so long a plan for a small table may be kept after the table has become a large one.
const EVERY: Duration = Duration::from_secs(5);

/// The periodic task, until the stop.
pub(super) fn part(
    ground: &Resources,
) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
    let pool = ground.pool.clone();
    let task = move |_| {
        let pool = pool.clone();
        async move {
            let tables = analyze::refresh(&pool).await?;
            if !tables.is_empty() {
                tracing::debug!(?tables, "had the server look at tables that have grown");
            }
            Ok::<(), Error>(())
        }
    };
    run_periodic(
        ground.pool.clone(),
        Periodic::new("statistics", EVERY),
        ground.stop.clone(),
        task,
    )
}
