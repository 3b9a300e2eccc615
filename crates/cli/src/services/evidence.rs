//! How evidence plugs into the program.

use std::sync::Arc;

use axum::extract::FromRef;
use postrider_blob::Store;
use postrider_evidence::{
    Evidence,
    cases::{CaseApi, HttpCases, HttpSettings, PaperCases},
    cleaning,
    notify::{self, Deliverer},
    scheduler::Scheduler,
    summary_gate::Gate,
    task_consumer, worker,
};
use sqlx::PgPool;

use super::{Part, Service};
use crate::{
    config::Config,
    exit::{Exit, Failure},
    http::State,
    roles::{Resources, Role},
};

pub(super) const SERVICE: Service = Service {
    name: "evidence",
    migrations: postrider_evidence::migrations,
    codes: postrider_evidence::codes::ALL,
    tables: &[&postrider_evidence::ATTACH_TASKS],
    checks: postrider_evidence::CHECKS,
    trail: |apis, id| super::by_uuid(id, |id| apis.evidence.trail(id)),
    parts,
    register: postrider_evidence::counters::register,
    readings: |pool| Box::pin(postrider_evidence::readings(pool)),
};

impl FromRef<State> for Evidence {
    fn from_ref(state: &State) -> Self {
        state.apis.evidence.clone()
    }
}

/// What the routes stand on.
pub(super) fn start(pool: &PgPool, store: &Store, config: &Config) -> Result<Evidence, Failure> {
    Evidence::start(pool.clone(), store.clone(), &config.evidence)
        .map_err(|e| Failure::caused(Exit::Config, "evidence can't be taken in", &e))
}

fn parts(ground: &Resources, config: &Config) -> Result<Vec<Part>, Failure> {
    let settings = &config.evidence;
    let (pool, store, stop) = (&ground.pool, &ground.store, &ground.stop);
    let failed =
        |e: postrider::Error| Failure::caused(Exit::Config, "evidence can't be attached", &e);
    let worker = worker::worker(
        pool.clone(),
        store.clone(),
        settings,
        cases(ground, config)?,
        &ground.breakers,
        settings.breaker.over(config.breaker),
    )
    .map_err(failed)?;
    let scheduler = Scheduler::new(pool.clone(), store.clone(), settings).map_err(failed)?;
    let gate = Gate::new(pool.clone(), settings);
    let deliverer = Deliverer::new(pool.clone(), &settings.notify)
        .map_err(|e| Failure::caused(Exit::Config, "nobody can be notified", &e))?;
    let transport = Arc::clone(&ground.transport);
    let lease = settings.lease.seconds;
    let armer = task_consumer::run(pool.clone(), Arc::clone(&transport), lease, stop.clone());
    let watch = notify::watch(gate, Arc::clone(&transport), lease, stop.clone());
    let deliver = notify::deliver(deliverer, transport, lease, stop.clone());
    // Twice the longest upload: none can be under way that long.
    let orphaned_after = 2 * settings.ingest.timeout;
    let sweep = cleaning::sweep(pool.clone(), store.clone(), orphaned_after, stop.clone());
    let prune = cleaning::prune(pool.clone(), config.retention.attempts, stop.clone());
    Ok(vec![
        Part::new(Role::Worker, armer),
        Part::new(
            Role::Worker,
            worker.with_pool(&ground.side).run(stop.clone()),
        ),
        Part::new(Role::Worker, watch),
        Part::new(Role::Worker, deliver),
        Part::new(Role::Scheduler, scheduler.run(stop.clone())),
        Part::new(Role::Scheduler, sweep),
        Part::new(Role::Scheduler, prune),
    ])
}

fn cases(ground: &Resources, config: &Config) -> Result<Arc<dyn CaseApi>, Failure> {
    let settings = &config.evidence.case_api;
    let Some(url) = settings.url.clone() else {
        return Ok(Arc::new(PaperCases::in_database(ground.pool.clone())));
    };
    let settings = HttpSettings {
        url,
        token: settings.token.clone(),
        timeout: settings.timeout,
    };
    let cases = HttpCases::new(settings)
        .map_err(|e| Failure::caused(Exit::Config, "the Case API can't be called", &e))?;
    Ok(Arc::new(cases))
}
