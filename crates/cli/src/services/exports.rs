//! How exports plug into the program.

use axum::extract::FromRef;
use postrider_exports::{Exports, completion, worker};

use super::{Part, Service};
use crate::{
    config::Config,
    exit::{Exit, Failure},
    http::State,
    roles::{Resources, Role},
};

pub(super) const SERVICE: Service = Service {
    name: "exports",
    migrations: postrider_exports::migrations,
    codes: postrider_exports::codes::ALL,
    tables: &[&postrider_exports::EXPORT_JOB_INPUT],
    checks: postrider_exports::CHECKS,
    trail: |apis, id| Box::pin(apis.exports.trail(id)),
    parts,
    register: postrider_exports::counters::register,
    readings: |pool| Box::pin(completion::readings(pool)),
};

impl FromRef<State> for Exports {
    fn from_ref(state: &State) -> Self {
        state.apis.exports.clone()
    }
}

fn parts(ground: &Resources, config: &Config) -> Result<Vec<Part>, Failure> {
    let settings = &config.exports;
    let worker = worker::worker(
        ground.pool.clone(),
        ground.store.clone(),
        settings,
        &ground.breakers,
        settings.breaker.over(config.breaker),
    )
    .map_err(|e| Failure::caused(Exit::Config, "exports can't be made", &e))?;
    let (pool, stop) = (&ground.pool, &ground.stop);
    let every = settings.finalizer_interval();
    let finalizer = completion::finalizer(pool.clone(), every, stop.clone());
    Ok(vec![
        Part::new(
            Role::Worker,
            worker.with_pool(&ground.side).run(stop.clone()),
        ),
        Part::new(Role::Scheduler, finalizer),
    ])
}
