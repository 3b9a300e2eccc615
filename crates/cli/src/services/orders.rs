//! How orders plug into the program.

use std::sync::Arc;

use axum::extract::FromRef;
use postrider_orders::{
    Orders,
    broker::{Broker, HttpBroker, HttpSettings, PaperBroker},
    cleaning, gauges, worker,
};

use super::{Part, Service};
use crate::{
    config::Config,
    exit::{Exit, Failure},
    http::State,
    roles::{Resources, Role},
};

pub(super) const SERVICE: Service = Service {
    name: "orders",
    migrations: postrider_orders::migrations,
    codes: postrider_orders::codes::ALL,
    tables: &[&postrider_orders::OUTBOX_ORDERS],
    checks: postrider_orders::CHECKS,
    trail: |apis, id| Box::pin(apis.orders.timeline(id)),
    parts,
    register: gauges::register,
    readings: |pool| Box::pin(gauges::read(pool)),
};

impl FromRef<State> for Orders {
    fn from_ref(state: &State) -> Self {
        state.apis.orders.clone()
    }
}

fn parts(ground: &Resources, config: &Config) -> Result<Vec<Part>, Failure> {
    let settings = &config.orders;
    let worker = worker::worker(
        ground.pool.clone(),
        settings,
        broker(ground, config)?,
        &ground.breakers,
        settings.breaker.over(config.breaker),
    )
    .map_err(|e| Failure::caused(Exit::Config, "orders can't be sent", &e))?;
    let (pool, stop) = (&ground.pool, &ground.stop);
    let clean = cleaning::clean(pool.clone(), settings.retention, stop.clone());
    Ok(vec![
        Part::new(
            Role::Worker,
            worker.with_pool(&ground.side).run(stop.clone()),
        ),
        Part::new(Role::Scheduler, clean),
    ])
}

fn broker(ground: &Resources, config: &Config) -> Result<Arc<dyn Broker>, Failure> {
    let settings = &config.orders.broker;
    let Some(url) = settings.url.clone() else {
        return Ok(Arc::new(PaperBroker::in_database(ground.pool.clone())));
    };
    let settings = HttpSettings {
        url,
        token: settings.token.clone(),
        timeout: settings.timeout,
    };
    let broker = HttpBroker::new(settings)
        .map_err(|e| Failure::caused(Exit::Config, "the broker can't be called", &e))?;
    Ok(Arc::new(broker))
}
