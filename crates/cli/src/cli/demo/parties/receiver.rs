//! Who is notified of evidence: takes most notifications, and writes all of them down.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use serde_json::Value;

use super::lock;

/// A notification that was taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notification {
    /// Of which job.
    pub job: String,
    /// `evidence.n1` or `evidence.n2`.
    pub kind: String,
    /// Its id, the same whenever it comes again.
    pub id: String,
}

/// The receiver and its log.
#[derive(Default)]
pub struct Receiver {
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    calls: u64,
    taken: Vec<Notification>,
}

impl Receiver {
    /// Everything that was taken, as often as it came.
    pub fn taken(&self) -> Vec<Notification> {
        lock(&self.log).taken.clone()
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
) -> StatusCode {
    let mut log = lock(&receiver.log);
    log.calls += 1;
    if log.calls.is_multiple_of(4) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok());
    log.taken.push(Notification {
        job: text(&body["file_job_id"]),
        kind: text(&body["type"]),
        id: id.unwrap_or_default().to_owned(),
    });
    StatusCode::NO_CONTENT
}
