//! The two pipeline stages of protocols as an outside service: `POST /extraction` and `POST /grounding`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use postrider_protocols::{
    model::Criterion,
    stage::{extraction, grounding, vocabulary::Vocabulary},
};
use serde::Deserialize;
use serde_json::json;

use crate::{Call, FaultScript, lock};

/// How long a stage works on every request.
const PROCESSING_TIME: Duration = Duration::from_millis(400);

#[derive(Deserialize)]
struct StageRequest {
    protocol_id: String,
    #[serde(rename = "try")]
    try_no: i32,
    title: String,
    text: String,
    #[serde(default)]
    criteria: Vec<Criterion>,
}

#[derive(Default)]
struct Records {
    /// The number of calls by protocol, try and step.
    calls: BTreeMap<(String, i32, String), u32>,
    /// The last answer of grounding, by protocol.
    grounded: BTreeMap<String, Vec<Criterion>>,
}

/// Both stages.
pub struct SimulatedStages {
    vocabulary: Vocabulary,
    script: FaultScript,
    records: Mutex<Records>,
}

impl SimulatedStages {
    /// Stages that ground in this vocabulary and fail as this script says.
    #[must_use]
    pub fn new(vocabulary: Vocabulary, script: FaultScript) -> Self {
        Self {
            vocabulary,
            script,
            records: Mutex::default(),
        }
    }

    /// Their fault script.
    #[must_use]
    pub const fn script(&self) -> &FaultScript {
        &self.script
    }

    /// The last answer of grounding, by protocol.
    #[must_use]
    pub fn grounded(&self) -> BTreeMap<String, Vec<Criterion>> {
        lock(&self.records).grounded.clone()
    }

    /// The number of protocols for which some step of some try was called more than once.
    #[must_use]
    pub fn retried_protocols(&self) -> usize {
        let records = lock(&self.records);
        let repeated = records.calls.iter().filter(|(_, calls)| **calls > 1);
        let mut protocols: Vec<&String> = repeated.map(|((protocol, ..), _)| protocol).collect();
        protocols.dedup();
        protocols.len()
    }

    fn run(&self, step: &str, request: StageRequest) -> Response {
        let criteria = match step {
            "extraction" => extraction::criteria(&request.text),
            "grounding" => {
                let mut criteria = request.criteria;
                grounding::ground(&self.vocabulary, &mut criteria);
                let grounded = &mut lock(&self.records).grounded;
                grounded.insert(request.protocol_id, criteria.clone());
                criteria
            }
            _ => return StatusCode::NOT_FOUND.into_response(),
        };
        Json(json!({ "criteria": criteria })).into_response()
    }
}

/// The routes of both stages.
pub fn routes(stages: Arc<SimulatedStages>) -> Router {
    Router::new()
        .route("/{step}", post(handle))
        .with_state(stages)
}

async fn handle(
    State(stages): State<Arc<SimulatedStages>>,
    Path(step): Path<String>,
    Json(request): Json<StageRequest>,
) -> Response {
    let number = {
        let calls = &mut lock(&stages.records).calls;
        let key = (request.protocol_id.clone(), request.try_no, step.clone());
        let calls = calls.entry(key).or_default();
        *calls += 1;
        *calls
    };
    tokio::time::sleep(PROCESSING_TIME).await;
    let action = stages.script.decide(&Call {
        title: Some(&request.title),
        number,
        ..Call::default()
    });
    action.answer(async { stages.run(&step, request) }).await
}
