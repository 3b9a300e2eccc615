//! The road from the wallet back to the orchestrator: it loses some calls on the way there, and some answers on the way
//! back.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::put,
};
use serde_json::Value;

use super::lock;
use crate::exit::{Exit, Failure};

/// How long a call is under way.
const WAY: Duration = Duration::from_millis(100);

/// What the road has seen of one payment.
#[derive(Debug, Default, Clone, Copy)]
pub struct Seen {
    /// So many calls.
    pub calls: u32,
    /// The orchestrator has taken one of them.
    pub told: bool,
}

/// The road and its log.
pub struct Road {
    client: reqwest::Client,
    orchestrator: OnceLock<SocketAddr>,
    calls: AtomicU64,
    seen: Mutex<BTreeMap<String, Seen>>,
}

impl Road {
    /// A road that leads nowhere yet.
    pub fn new() -> Result<Self, Failure> {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(10))
            .no_proxy()
            .build()
            .map_err(|e| Failure::caused(Exit::Failed, "no client can be made", &e))?;
        Ok(Self {
            client,
            orchestrator: OnceLock::new(),
            calls: AtomicU64::new(0),
            seen: Mutex::default(),
        })
    }

    /// It leads to this orchestrator.
    pub fn lead_to(&self, orchestrator: SocketAddr) {
        // There is one for the whole demo.
        let _ = self.orchestrator.set(orchestrator);
    }

    /// What was seen, by payment.
    pub fn seen(&self) -> BTreeMap<String, Seen> {
        lock(&self.seen).clone()
    }
}

/// The road's entry.
pub fn routes(road: Arc<Road>) -> Router {
    Router::new()
        .route("/internal/requests/{uuid}", put(pass))
        .with_state(road)
}

async fn pass(
    State(road): State<Arc<Road>>,
    Path(uuid): Path<String>,
    Json(ending): Json<Value>,
) -> StatusCode {
    let call = road.calls.fetch_add(1, Ordering::Relaxed) + 1;
    lock(&road.seen).entry(uuid.clone()).or_default().calls += 1;
    tokio::time::sleep(WAY).await;
    if call.is_multiple_of(7) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let Some(orchestrator) = road.orchestrator.get() else {
        return StatusCode::SERVICE_UNAVAILABLE;
    };
    let url = format!("http://{orchestrator}/internal/requests/{uuid}");
    let Ok(answer) = road.client.put(url).json(&ending).send().await else {
        return StatusCode::BAD_GATEWAY;
    };
    if answer.status().is_success() {
        lock(&road.seen).entry(uuid).or_default().told = true;
    }
    if call.is_multiple_of(11) {
        return StatusCode::GATEWAY_TIMEOUT;
    }
    StatusCode::from_u16(answer.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY)
}
