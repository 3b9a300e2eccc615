//! The pipeline's two stages as a service of somebody else: it fails now and then, and one title is under embargo.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
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

use super::lock;
use crate::exit::{Exit, Failure};

/// A title with this word is refused while the embargo lasts.
pub const EMBARGOED: &str = "EMBARGO";

/// How long a stage thinks.
const THOUGHT: Duration = Duration::from_millis(400);

/// What a stage is asked.
#[derive(Deserialize)]
struct Question {
    protocol_id: String,
    #[serde(rename = "try")]
    try_no: i32,
    title: String,
    text: String,
    #[serde(default)]
    criteria: Vec<Criterion>,
}

#[derive(Default)]
struct Log {
    calls: u64,
    /// By protocol, try and step.
    asked: BTreeMap<(String, i32, String), u32>,
    /// What grounding last answered, by protocol.
    answers: BTreeMap<String, Vec<Criterion>>,
}

/// The stages and their log.
pub struct Stages {
    vocabulary: Vocabulary,
    embargo: AtomicBool,
    log: Mutex<Log>,
}

impl Stages {
    /// Stages that respect the embargo.
    pub fn new() -> Result<Self, Failure> {
        let vocabulary = Vocabulary::ours()
            .map_err(|e| Failure::caused(Exit::Failed, "the built-in vocabulary", &e))?;
        Ok(Self {
            vocabulary,
            embargo: AtomicBool::new(true),
            log: Mutex::default(),
        })
    }

    /// The embargo is over.
    pub fn lift_embargo(&self) {
        self.embargo.store(false, Ordering::Relaxed);
    }

    /// What grounding answered about each protocol.
    pub fn answers(&self) -> BTreeMap<String, Vec<Criterion>> {
        lock(&self.log).answers.clone()
    }

    /// Protocols for which some step of some try was asked for more than once.
    pub fn asked_again(&self) -> usize {
        let log = lock(&self.log);
        let again = log.asked.iter().filter(|(_, times)| **times > 1);
        let mut protocols: Vec<&String> = again.map(|((protocol, ..), _)| protocol).collect();
        protocols.dedup();
        protocols.len()
    }
}

/// `POST /extraction` and `POST /grounding`.
pub fn routes(stages: Arc<Stages>) -> Router {
    Router::new()
        .route("/{step}", post(answer))
        .with_state(stages)
}

async fn answer(
    State(stages): State<Arc<Stages>>,
    Path(step): Path<String>,
    Json(question): Json<Question>,
) -> Response {
    let call = {
        let mut log = lock(&stages.log);
        let asked = (question.protocol_id.clone(), question.try_no, step.clone());
        *log.asked.entry(asked).or_default() += 1;
        log.calls += 1;
        log.calls
    };
    tokio::time::sleep(THOUGHT).await;
    if stages.embargo.load(Ordering::Relaxed) && question.title.contains(EMBARGOED) {
        let refusal = "this protocol is under embargo";
        return (StatusCode::UNPROCESSABLE_ENTITY, refusal).into_response();
    }
    if call.is_multiple_of(6) {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let criteria = match step.as_str() {
        "extraction" => extraction::criteria(&question.text),
        "grounding" => {
            let mut criteria = question.criteria;
            grounding::ground(&stages.vocabulary, &mut criteria);
            let answers = &mut lock(&stages.log).answers;
            answers.insert(question.protocol_id, criteria.clone());
            criteria
        }
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    Json(json!({ "criteria": criteria })).into_response()
}
