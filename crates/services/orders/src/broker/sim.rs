//! The paper broker behind HTTP, for tests and for trying things out: `postrider sim broker`.
//!
//! Beside the two routes that every broker has, `GET /orders` shows the whole book and `PUT /script` changes how it
//! misbehaves. It asks for no token and keeps nothing.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use futures_util::stream;
use serde_json::{Value, json};

use super::{PaperBroker, Rule, paper::Reaction};

/// The routes of a simulated broker.
pub fn simulator(broker: Arc<PaperBroker>) -> Router {
    Router::new()
        .route("/orders", post(submit).get(book))
        .route("/orders/{client_order_id}", get(look_up))
        .route("/script", put(script))
        .with_state(broker)
}

async fn submit(State(broker): State<Arc<PaperBroker>>, Json(order): Json<Value>) -> Response {
    let Ok(reaction) = broker.receive(order).await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    match reaction {
        Reaction::Answer(answer) => (StatusCode::CREATED, Json(answer)).into_response(),
        Reaction::Reject(reason) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            Json(json!({ "reason_code": reason })),
        )
            .into_response(),
        Reaction::NotOk(reason) => {
            Json(json!({ "status": "error", "reason_code": reason })).into_response()
        }
        Reaction::Fail(status, wait) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            match wait {
                Some(seconds) => {
                    (status, [(header::RETRY_AFTER, seconds.to_string())]).into_response()
                }
                None => status.into_response(),
            }
        }
        Reaction::HangUp => hang_up(),
    }
}

/// A body that fails in the middle makes the server break the connection.
fn hang_up() -> Response {
    let broken = stream::iter([
        Ok::<_, std::io::Error>("{"),
        Err(std::io::ErrorKind::ConnectionReset.into()),
    ]);
    Body::from_stream(broken).into_response()
}

async fn look_up(State(broker): State<Arc<PaperBroker>>, Path(id): Path<String>) -> Response {
    match broker.known(&id).await {
        Ok(Some(answer)) => Json(answer).into_response(),
        Ok(None) => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn book(State(broker): State<Arc<PaperBroker>>) -> Json<Value> {
    Json(json!({ "orders": broker.booked() }))
}

async fn script(
    State(broker): State<Arc<PaperBroker>>,
    Json(rules): Json<Vec<Rule>>,
) -> StatusCode {
    broker.script().replace(rules);
    StatusCode::NO_CONTENT
}
