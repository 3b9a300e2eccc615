//! An unreliable link from the wallet to the orchestrator: a proxy that loses requests and answers as its script says.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::put,
};
use serde_json::Value;

use crate::{Call, FaultScript, faults::status, lock};

/// The delay of every callback.
const LATENCY: Duration = Duration::from_millis(100);

/// The longest that the orchestrator may take to answer.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(10);

/// The callbacks about one payment.
#[derive(Debug, Default, Clone, Copy)]
pub struct Callbacks {
    /// The number of calls.
    pub calls: u32,
    /// Did the orchestrator accept one of them?
    pub delivered: bool,
}

/// The proxy.
pub struct CallbackProxy {
    client: reqwest::Client,
    script: FaultScript,
    orchestrator: OnceLock<SocketAddr>,
    records: Mutex<BTreeMap<String, Callbacks>>,
}

impl CallbackProxy {
    /// A proxy with injected faults as this script says.
    pub fn new(script: FaultScript) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder().timeout(FORWARD_TIMEOUT);
        Ok(Self {
            client: client.no_proxy().build()?,
            script,
            orchestrator: OnceLock::new(),
            records: Mutex::default(),
        })
    }

    /// Sets the orchestrator that calls are forwarded to; before that, they get a 503.
    pub fn forward_to(&self, orchestrator: SocketAddr) {
        // The first one stays.
        let _ = self.orchestrator.set(orchestrator);
    }

    /// The callbacks so far, by payment.
    #[must_use]
    pub fn callbacks(&self) -> BTreeMap<String, Callbacks> {
        lock(&self.records).clone()
    }

    async fn forward(&self, uuid: &str, body: &Value) -> Response {
        let Some(orchestrator) = self.orchestrator.get() else {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        };
        let url = format!("http://{orchestrator}/internal/requests/{uuid}");
        let Ok(answer) = self.client.put(url).json(body).send().await else {
            return StatusCode::BAD_GATEWAY.into_response();
        };
        if answer.status().is_success() {
            lock(&self.records)
                .entry(uuid.to_owned())
                .or_default()
                .delivered = true;
        }
        status(answer.status().as_u16(), None)
    }
}

/// `PUT /internal/requests/{uuid}`, as the orchestrator serves it.
pub fn routes(proxy: Arc<CallbackProxy>) -> Router {
    Router::new()
        .route("/internal/requests/{uuid}", put(handle))
        .with_state(proxy)
}

async fn handle(
    State(proxy): State<Arc<CallbackProxy>>,
    Path(uuid): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    let number = {
        let mut records = lock(&proxy.records);
        let record = records.entry(uuid.clone()).or_default();
        record.calls += 1;
        record.calls
    };
    tokio::time::sleep(LATENCY).await;
    let action = proxy.script.decide(&Call {
        number,
        ..Call::default()
    });
    action.answer(proxy.forward(&uuid, &body)).await
}
