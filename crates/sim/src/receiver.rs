//! The receiver of evidence notifications: `POST /`, recorded.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::Value;

use crate::{Call, FaultScript, lock};

/// A notification that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notification {
    /// The file job that it is about.
    pub job: String,
    /// `evidence.n1` or `evidence.n2`.
    pub kind: String,
    /// Its id, the same whenever it is sent again.
    pub id: String,
}

/// The receiver.
#[derive(Default)]
pub struct Receiver {
    script: FaultScript,
    accepted: Mutex<Vec<Notification>>,
}

impl Receiver {
    /// A receiver with injected faults as this script says.
    #[must_use]
    pub fn new(script: FaultScript) -> Self {
        Self {
            script,
            accepted: Mutex::default(),
        }
    }

    /// Every accepted notification, repeats included.
    #[must_use]
    pub fn accepted(&self) -> Vec<Notification> {
        lock(&self.accepted).clone()
    }
}

/// The receiver's route.
pub fn routes(receiver: Arc<Receiver>) -> Router {
    Router::new().route("/", post(receive)).with_state(receiver)
}

async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let accept = async {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let id = headers.get("webhook-id").and_then(|id| id.to_str().ok());
        lock(&receiver.accepted).push(Notification {
            job: text(&body["file_job_id"]),
            kind: text(&body["type"]),
            id: id.unwrap_or_default().to_owned(),
        });
        StatusCode::NO_CONTENT.into_response()
    };
    let action = receiver.script.decide(&Call::default());
    action.answer(accept).await
}
