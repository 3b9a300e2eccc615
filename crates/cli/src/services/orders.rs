//! Starts orders: the API and the background tasks, from the configuration.

use std::sync::Arc;

use postrider_orders::{
    Orders,
    broker::{Broker, HttpBroker, PaperBroker},
    cleaning, worker,
};

use super::Start;
use crate::{
    config::Config,
    exit::{Exit, Failure},
    roles::{Resources, Role, Task},
};

/// Starts the API.
pub(super) fn start(start: &Start<'_>) -> Result<Orders, Failure> {
    Ok(Orders::start(
        start.pool.clone(),
        start.config.orders.ordering,
    ))
}

pub(super) fn tasks(resources: &Resources, config: &Config) -> Result<Vec<Task>, Failure> {
    let settings = &config.orders;
    let worker = worker::worker(
        resources.pool.clone(),
        settings,
        broker(resources, config)?,
        &resources.breakers,
        settings.breaker.over(config.breaker),
    )
    .map_err(|e| Failure::caused(Exit::Config, "the orders worker can't be started", &e))?;
    let (pool, stop) = (&resources.pool, &resources.stop);
    let clean = cleaning::clean(pool.clone(), settings.retention, stop.clone());
    Ok(vec![
        Task::new(
            Role::Worker,
            worker.with_pool(&resources.worker_pool).run(stop.clone()),
        ),
        Task::new(Role::Scheduler, clean),
    ])
}

fn broker(resources: &Resources, config: &Config) -> Result<Arc<dyn Broker>, Failure> {
    let Some(endpoint) = config.orders.broker.endpoint() else {
        return Ok(Arc::new(PaperBroker::new(resources.pool.clone())));
    };
    let broker = HttpBroker::new(endpoint)
        .map_err(|e| Failure::caused(Exit::Config, "orders.broker", &e))?;
    Ok(Arc::new(broker))
}
