//! Starts exports: the API and the background tasks, from the configuration.

use postrider_exports::{Exports, cleaning, worker};

use super::Start;
use crate::{
    config::Config,
    exit::{Exit, Failure},
    roles::{Resources, Role, Task},
};

/// Starts the API.
pub(super) fn start(start: &Start<'_>) -> Result<Exports, Failure> {
    let (pool, store, stop) = (start.pool, start.store, start.stop);
    Ok(Exports::start(pool.clone(), store.clone(), stop.clone()))
}

pub(super) fn tasks(resources: &Resources, config: &Config) -> Result<Vec<Task>, Failure> {
    let settings = &config.exports;
    let worker = worker::worker(
        resources.pool.clone(),
        resources.store.clone(),
        settings,
        &resources.breakers,
        settings.breaker.over(config.breaker),
    )
    .map_err(|e| Failure::caused(Exit::Config, "the exports worker can't be started", &e))?;
    let (pool, stop) = (&resources.pool, &resources.stop);
    let every = settings.finalizer_interval();
    let finalizer = cleaning::finalizer(pool.clone(), every, stop.clone());
    Ok(vec![
        Task::new(
            Role::Worker,
            worker.with_pool(&resources.worker_pool).run(stop.clone()),
        ),
        Task::new(Role::Scheduler, finalizer),
    ])
}
