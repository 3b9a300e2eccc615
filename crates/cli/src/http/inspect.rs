//! `/config` and `/doctor`: what an operator asks a running server about itself.

use axum::{Json, extract};
use postrider_inspect::doctor::{Finding, Severity};
use postrider_web::{Scope, require};
use serde::Serialize;
use serde_json::Value;
use sqlx::PgPool;
use utoipa::ToSchema;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::State;
use crate::{config::Config, services};

/// With less free disk space than this, the disk is about to fill up.
const MIN_FREE: [(f64, Severity); 2] = [(0.03, Severity::Critical), (0.10, Severity::Warning)];

/// What the doctor found.
#[derive(Debug, Serialize, ToSchema)]
pub struct Diagnosis {
    /// The worst severity of all findings.
    #[schema(value_type = String, example = "ok")]
    worst: Severity,
    /// One finding per check and subject.
    #[schema(value_type = Vec<Object>)]
    findings: Vec<Finding>,
}

/// Examines the database, the wallet's own if it has one, and the disk. Changes nothing.
pub async fn diagnose(pool: &PgPool, wallet: Option<&PgPool>, config: &Config) -> Diagnosis {
    let mut report = services::doctor().examine(pool).await;
    if let Some(wallet) = wallet {
        let wallet = services::payments::wallet_doctor().examine(wallet).await;
        report.findings.extend(wallet.findings);
    }
    report.findings.extend(disk(config));
    Diagnosis {
        worst: report.worst(),
        findings: report.findings,
    }
}

/// Free disk space; known only for a database on this machine.
fn disk(config: &Config) -> Option<Finding> {
    if config.database.url.is_some() {
        return None;
    }
    let data_dir = config.data_dir();
    let space = nix::sys::statvfs::statvfs(&data_dir).ok()?;
    // Blocks reserved for root count as neither used nor free, as in `df`.
    let used = space.blocks().saturating_sub(space.blocks_free());
    let available = space.blocks_available();
    #[allow(clippy::cast_precision_loss, reason = "a percentage for people")]
    let free = available as f64 / (used + available).max(1) as f64;
    let severity = MIN_FREE
        .iter()
        .find(|(min, _)| free < *min)
        .map_or(Severity::Ok, |(_, severity)| *severity);
    let advice = "free disk space or move the data directory: on a full disk the server stops and accepts no work";
    Some(Finding {
        check: "server/disk".to_owned(),
        subject: Some(data_dir.display().to_string()),
        severity,
        what: format!("{:.0} % of the disk is free", free * 100.0),
        advice: (severity > Severity::Ok).then(|| advice.to_owned()),
        items: Vec::new(),
    })
}

pub(super) fn routes() -> OpenApiRouter<State> {
    OpenApiRouter::new()
        .routes(routes!(get_config))
        .routes(routes!(get_doctor))
        .route_layer(require(Scope::Operate))
}

/// The effective configuration.
///
/// Each key with its value and where the value came from. Secrets are hidden.
#[utoipa::path(get, path = "/config", tag = "operate", security(("bearer" = ["operate"])), responses(
    (status = 200, description = "every key with its value and origin", body = Object),
))]
async fn get_config(extract::State(state): extract::State<State>) -> Json<Value> {
    Json(crate::config::as_json(&state.config))
}

/// Examines the database.
///
/// The same checks as `postrider doctor`. Changes nothing.
#[utoipa::path(get, path = "/doctor", tag = "operate", security(("bearer" = ["operate"])), responses(
    (status = 200, description = "all findings, including those that are ok", body = Diagnosis),
))]
async fn get_doctor(extract::State(state): extract::State<State>) -> Json<Diagnosis> {
    let config = &state.config.config;
    Json(diagnose(&state.pool, state.wallet.as_ref(), config).await)
}
