//! The HTTP server: its state, its middleware, and the routes that belong to no service.
//!
//! `/healthz` says that the process is alive, `/readyz` that it can work; `/metrics` is for Prometheus; `/config` and
//! `/doctor` inspect the server; `/openapi.json` and `/reference` describe the API; `/errors/{code}` explains an error
//! code.

mod describe;
mod health;
mod inspect;
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
pub use inspect::diagnose;
pub use metrics::Metrics;
pub use server::serve;

use crate::{
    alerts,
    config::{Config, Effective},
    console::{self, Console},
    exit::{Exit, Failure},
    operate::{self, Operate},
    roles::{Role, Roles},
    services::{self, Apis},
};

/// State of the routes. Cheap to clone, which axum does several times per request.
#[derive(Clone)]
pub struct State(Arc<Shared>);

/// The shared state.
pub struct Shared {
    /// The database.
    pub pool: PgPool,
    /// The wallet's own database, if it has one.
    pub wallet: Option<PgPool>,
    /// The configuration.
    pub config: Effective,
    /// Which roles run.
    pub readiness: Arc<Readiness>,
    /// Metrics of this process.
    pub metrics: Metrics,
    /// Active alerts.
    pub alerts: alerts::State,
    /// The services.
    pub apis: Arc<Apis>,
    /// The operations API.
    pub operate: Operate,
}

impl From<Shared> for State {
    fn from(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}

impl Deref for State {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Routes that need no token: probes have none, and the pages show nothing that is stored.
const OPEN: [&str; 7] = [
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/reference",
    "/assets/style.css",
    "/errors",
    "/errors/{code}",
];

/// Every route of these roles, with the middleware.
pub fn router(state: State, config: &Config, roles: &Roles) -> Result<Router, Failure> {
    let invalid = |e: &(dyn std::error::Error + 'static)| {
        Failure::caused(Exit::Failed, "the API can't be assembled", e)
    };
    let catalogue = error_catalogue().map_err(|e| invalid(&e))?;
    let routes = if roles.has(Role::Api) {
        routes()
    } else {
        own_routes()
    };
    let server = &config.server;
    let tokens = Arc::new(Tokens::new(server.tokens.clone()).map_err(|e| invalid(&e))?);
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
    Ok(postrider_web::with_middleware(router, options))
}

/// Every error code of the program with its page.
pub fn error_catalogue() -> Result<ErrorCatalogue, DuplicateCode> {
    let services = services::descriptions().map(|service| service.codes);
    ErrorCatalogue::new(services.chain([operate::codes::ALL]))
}

/// The routes in the OpenAPI document.
fn routes() -> OpenApiRouter<State> {
    services::routers().fold(own_routes(), OpenApiRouter::merge)
}

/// The routes that belong to no service.
fn own_routes() -> OpenApiRouter<State> {
    OpenApiRouter::new()
        .merge(health::routes())
        .merge(metrics::routes())
        .merge(inspect::routes())
        .merge(operate::routes())
        .merge(alerts::routes())
}
