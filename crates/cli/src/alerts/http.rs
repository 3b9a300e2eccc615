//! `GET /alerts`.

use axum::extract;
use postrider_web::{Json, Problem, Scope, require};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Alert, list};
use crate::http::State;

/// What is wrong, what may soon be, and what was over within a day.
#[derive(Debug, Serialize, ToSchema)]
struct Alerts {
    /// Those that fire first, the worst first; at most 500.
    alerts: Vec<Alert>,
}

pub(crate) fn routes() -> OpenApiRouter<State> {
    OpenApiRouter::new()
        .routes(routes!(get_alerts))
        .route_layer(require(Scope::Read))
}

/// What is wrong.
///
/// Judged by the same rules as `deploy/alerts.yml`, for those who run no Prometheus.
#[utoipa::path(get, path = "/alerts", tag = "operate", security(("bearer" = ["read"])), responses(
    (status = 200, description = "all alerts of the last day", body = Alerts),
))]
async fn get_alerts(extract::State(state): extract::State<State>) -> Result<Json<Alerts>, Problem> {
    let alerts = list(&state.pool).await?;
    Ok(Json(Alerts { alerts }))
}
