//! Sweeping the object store under a leader lease: deletes what crashed writers left behind.

use std::time::Duration;

use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};

use super::tasks::Resources;

const INTERVAL: Duration = Duration::from_secs(3600);

/// No live writer takes this long between two parts of an object.
const MIN_AGE: Duration = Duration::from_secs(24 * 3600);

/// The periodic task, until the stop.
pub(super) fn task(
    resources: &Resources,
) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
    let store = resources.store.clone();
    let task = move |_| {
        let store = store.clone();
        async move {
            let deleted = store.sweep(MIN_AGE).await?;
            if deleted > 0 {
                tracing::info!(deleted, "deleted unfinished objects from the store");
            }
            Ok::<(), postrider_blob::Error>(())
        }
    };
    run_periodic(
        resources.pool.clone(),
        Periodic::new("store.sweep", INTERVAL),
        resources.stop.clone(),
        task,
    )
}
