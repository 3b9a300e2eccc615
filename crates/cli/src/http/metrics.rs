//! `/metrics`, in the Prometheus text format.

use axum::{extract, http::header, response::IntoResponse};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use postrider_web::{Scope, require};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::State;
use crate::exit::{Exit, Failure};

/// Upper bounds of the duration histograms, in seconds.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

/// Upper bounds for the time from N1 to N2, in seconds.
const HOURS: [f64; 10] = [
    1.0, 60.0, 300.0, 900.0, 3_600.0, 7_200.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0,
];

/// Upper bounds for the number of messages in a group commit.
const SIZES: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The metrics of this process.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Installs the recorder; once per process.
    pub fn install() -> Result<Self, Failure> {
        PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)
            .and_then(|builder| {
                let latency = Matcher::Full("evidence_n2_latency_seconds".into());
                builder.set_buckets_for_metric(latency, &HOURS)
            })
            .and_then(|builder| {
                let sizes = Matcher::Full("postrider_enqueue_group_size".into());
                builder.set_buckets_for_metric(sizes, &SIZES)
            })
            .and_then(PrometheusBuilder::install_recorder)
            .map(Self)
            .map_err(|e| Failure::caused(Exit::Failed, "metrics can't be started", &e))
    }

    /// Compacts histograms; call it periodically, or they grow between scrapes.
    pub fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

pub(super) fn routes() -> OpenApiRouter<State> {
    OpenApiRouter::new()
        .routes(routes!(metrics))
        .route_layer(require(Scope::Read))
}

/// Get the metrics.
#[utoipa::path(get, path = "/metrics", tag = "health", security(("bearer" = ["read"])), responses(
    (status = 200, description = "all metrics", body = String, content_type = "text/plain"),
))]
async fn metrics(extract::State(state): extract::State<State>) -> impl IntoResponse {
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        state.metrics.0.render(),
    )
}
