//! Starts evidence: the API and the background tasks, from the configuration.

use std::sync::Arc;

use postrider_evidence::{
    Evidence,
    cases::{CaseApi, HttpCases, PaperCases},
    cleaning,
    notify::{self, Deliverer},
    scheduler::Scheduler,
    summary_gate::Gate,
    task_consumer, worker,
};

use super::Start;
use crate::{
    config::Config,
    exit::{Exit, Failure},
    roles::{Resources, Role, Task},
};

/// Starts the API.
pub(super) fn start(start: &Start<'_>) -> Result<Evidence, Failure> {
    let (pool, store) = (start.pool.clone(), start.store.clone());
    Evidence::start(pool, store, &start.config.evidence)
        .map_err(|e| Failure::caused(Exit::Config, "evidence can't be started", &e))
}

pub(super) fn tasks(resources: &Resources, config: &Config) -> Result<Vec<Task>, Failure> {
    let settings = &config.evidence;
    let (pool, store, stop) = (&resources.pool, &resources.store, &resources.stop);
    let failed = |e: postrider::Error| {
        Failure::caused(Exit::Config, "the evidence worker can't be started", &e)
    };
    let worker = worker::worker(
        pool.clone(),
        store.clone(),
        settings,
        cases(resources, config)?,
        &resources.breakers,
        settings.breaker.over(config.breaker),
    )
    .map_err(failed)?;
    let scheduler = Scheduler::new(pool.clone(), store.clone(), settings).map_err(failed)?;
    let gate = Gate::new(pool.clone(), settings);
    let deliverer = Deliverer::new(pool.clone(), &settings.notify)
        .map_err(|e| Failure::caused(Exit::Config, "notifications can't be sent", &e))?;
    let transport = Arc::clone(&resources.transport);
    let lease = settings.lease.seconds;
    let task_consumer =
        task_consumer::run(pool.clone(), Arc::clone(&transport), lease, stop.clone());
    let watch = notify::watch(gate, Arc::clone(&transport), lease, stop.clone());
    let deliver = notify::deliver(deliverer, transport, lease, stop.clone());
    // Twice the upload timeout: no upload can take that long.
    let orphaned_after = 2 * settings.ingest.timeout;
    let sweep = cleaning::sweep(pool.clone(), store.clone(), orphaned_after, stop.clone());
    let prune = cleaning::prune(pool.clone(), config.retention.attempts, stop.clone());
    Ok(vec![
        Task::new(Role::Worker, task_consumer),
        Task::new(
            Role::Worker,
            worker.with_pool(&resources.worker_pool).run(stop.clone()),
        ),
        Task::new(Role::Worker, watch),
        Task::new(Role::Worker, deliver),
        Task::new(Role::Scheduler, scheduler.run(stop.clone())),
        Task::new(Role::Scheduler, sweep),
        Task::new(Role::Scheduler, prune),
    ])
}

fn cases(resources: &Resources, config: &Config) -> Result<Arc<dyn CaseApi>, Failure> {
    let Some(endpoint) = config.evidence.case_api.endpoint() else {
        return Ok(Arc::new(PaperCases::new(resources.pool.clone())));
    };
    let cases = HttpCases::new(endpoint)
        .map_err(|e| Failure::caused(Exit::Config, "evidence.case_api", &e))?;
    Ok(Arc::new(cases))
}
