//! The HTTP shell: what every request goes through, and the few routes that belong to no service.
//!
//! `/healthz` says that the process lives, `/readyz` that it can work; `/metrics` is for Prometheus; `/openapi.json`
//! and `/reference` describe the API; `/errors/{code}` explains an error code.

mod describe;
mod health;
mod metrics;
mod reference;
mod server;

use std::{ops::Deref, sync::Arc};

use axum::Router;
use postrider_web::{
    ErrorCatalogue, MiddlewareOptions, ProblemPage, Tokens, error_code::DuplicateCode,
};
use sqlx::PgPool;
use utoipa_axum::router::OpenApiRouter;

pub use describe::{openapi, openapi_json};
pub use health::Readiness;
pub use metrics::Metrics;
pub use server::serve;

use crate::{
    alerts,
    config::Config,
    console::{self, Console},
    exit::{Exit, Failure},
    operate::{self, Operate},
    roles::{Role, Roles},
    services::{self, Apis},
};

/// What routes need. Cheap to clone, which axum does several times per request.
#[derive(Clone)]
pub struct State(Arc<Parts>);

/// What there is in it.
pub struct Parts {
    /// The database.
    pub pool: PgPool,
    /// Which roles run.
    pub readiness: Arc<Readiness>,
    /// What has been counted.
    pub metrics: Metrics,
    /// What is wrong right now.
    pub alerts: alerts::State,
    /// What the services' routes need.
    pub apis: Arc<Apis>,
    /// What operators see and do.
    pub operate: Operate,
}

impl From<Parts> for State {
    fn from(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for State {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// Routes that need no token: probes run without one, and the pages say nothing of what is stored.
const OPEN: [&str; 7] = [
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/reference",
    "/assets/style.css",
    "/errors",
    "/errors/{code}",
];

/// Every route that these roles serve, with the shell around it.
pub fn router(state: State, config: &Config, roles: &Roles) -> Result<Router, Failure> {
    let refused = |e: &(dyn std::error::Error + 'static)| {
        Failure::caused(Exit::Failed, "the API can't be put together", e)
    };
    let catalogue = error_catalogue().map_err(|e| refused(&e))?;
    let routes = if roles.has(Role::Api) {
        routes()
    } else {
        own_routes()
    };
    let server = &config.server;
    let tokens = Arc::new(Tokens::new(server.tokens.clone()).map_err(|e| refused(&e))?);
    let mut open = OPEN.map(str::to_owned).to_vec();
    let mut pages = Router::new();
    let mut problem_page: Option<ProblemPage> = None;
    if roles.has(Role::Console) {
        let console = Console::new(&state, &tokens, config.console);
        pages = console::routes(console);
        open.extend(console::PATHS.map(str::to_owned));
        problem_page = Some(console::problem_page);
    }
    let (router, document) = describe::with_document(routes).split_for_parts();
    let router = router
        .with_state(state)
        .merge(pages)
        .merge(describe::routes_for(document))
        .merge(catalogue.routes());
    let options = MiddlewareOptions {
        tokens,
        open,
        body_limit: usize::try_from(server.body_limit.as_u64()).unwrap_or(usize::MAX),
        time_limit: server.request_timeout,
        problem_page,
    };
    Ok(postrider_web::shell(router, options))
}

/// Every error code of the program with its page.
pub fn error_catalogue() -> Result<ErrorCatalogue, DuplicateCode> {
    let services = services::descriptions().map(|service| service.codes);
    ErrorCatalogue::new(services.chain([operate::codes::ALL]))
}

/// The routes that are part of the API's description.
fn routes() -> OpenApiRouter<State> {
    services::routers().fold(own_routes(), OpenApiRouter::merge)
}

/// The routes that belong to no service.
fn own_routes() -> OpenApiRouter<State> {
    OpenApiRouter::new()
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(operate::routes())
        .merge(alerts::routes())
}
