//! Sweeping the store under a leader lease: what writers left behind that died halfway.

use std::time::Duration;

use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};

use super::parts::Resources;

/// How often.
const EVERY: Duration = Duration::from_secs(3600);

/// No writer that lives takes so long from one part of an object to the next.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// The periodic task, until the stop.
pub(super) fn part(
    ground: &Resources,
) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
    let store = ground.store.clone();
    let task = move |_| {
        let store = store.clone();
        async move {
            let gone = store.sweep(AGE).await?;
            if gone > 0 {
                tracing::info!(gone, "swept what unfinished writers left in the store");
            }
            Ok::<(), postrider_blob::Error>(())
        }
    };
    run_periodic(
        ground.pool.clone(),
        Periodic::new("store.sweep", EVERY),
        ground.stop.clone(),
        task,
    )
}
