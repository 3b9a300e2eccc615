//! The API for operators. To see needs the scope `read`, to act `operate`.

use axum::extract::{FromRef, State};
use postrider_web::{Json, Problem, Scope, require};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Operate, overview::Overview};
use crate::http;

impl FromRef<http::State> for Operate {
    fn from_ref(state: &http::State) -> Self {
        state.operate.clone()
    }
}

/// The routes.
pub fn routes() -> OpenApiRouter<http::State> {
    OpenApiRouter::new()
        .routes(routes!(overview))
        .route_layer(require(Scope::Read))
}

/// How everything is.
///
/// What waits, what was done in the last quarter of an hour, what was given up, and who is at work, for all processes on
/// this database. The answer may be a second old; counts end at 10,000 and say so.
#[utoipa::path(get, path = "/overview", tag = "operations", security(("bearer" = ["read"])), responses(
    (status = 200, description = "each service, breakers, leaders, workers", body = Overview),
))]
async fn overview(State(operate): State<Operate>) -> Result<Json<Overview>, Problem> {
    let overview = operate.overview().await?;
    Ok(Json((*overview).clone()))
}
