//! `GET /alerts`.

use axum::extract;
use postrider_web::{Json, Problem, Scope, require};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{Alert, list};
use crate::http::State;

/// Firing and pending alerts, and those resolved within a day.
#[derive(Debug, Serialize, ToSchema)]
struct Alerts {
    /// Firing ones first, the most severe first; at most 500.
    alerts: Vec<Alert>,
}

pub(crate) fn routes() -> OpenApiRouter<State> {
    OpenApiRouter::new()
        .routes(routes!(get_alerts))
        .route_layer(require(Scope::Read))
}

/// List alerts.
///
/// Evaluated by the same rules as `deploy/alerts.yml`, for deployments without Prometheus.
#[utoipa::path(get, path = "/alerts", tag = "operate", security(("bearer" = ["read"])), responses(
    (status = 200, description = "all alerts of the last day", body = Alerts),
))]
async fn get_alerts(extract::State(state): extract::State<State>) -> Result<Json<Alerts>, Problem> {
    let alerts = list(&state.pool).await?;
    Ok(Json(Alerts { alerts }))
}
