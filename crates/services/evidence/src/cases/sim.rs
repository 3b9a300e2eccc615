//! The built-in Case API behind HTTP, for tests and for trying things out: `postrider sim cases`.
//!
//! Beside the two methods that every Case API has, `GET /evidence` shows all that is attached, `GET /calls` its log,
//! `DELETE /cases/{id}` forgets a case and `PUT /script` changes how it misbehaves. It asks for no token.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, Path, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{delete, get, put},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{PaperCases, Rule, http::DIGEST, http::NAME, paper::Reaction};

/// The routes of a simulated Case API.
pub fn simulator(cases: Arc<PaperCases>) -> Router {
    Router::new()
        .route(
            "/cases/{case_id}/evidence/{artifact_id}",
            put(attach).get(look_up),
        )
        .route("/cases/{case_id}", delete(forget))
        .route("/evidence", get(evidence))
        .route("/calls", get(calls))
        .route("/script", put(script))
        .layer(DefaultBodyLimit::disable())
        .with_state(cases)
}

async fn attach(
    State(cases): State<Arc<PaperCases>>,
    Path((case, artifact)): Path<(Uuid, Uuid)>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let mut hash = Sha256::new();
    let mut pieces = request.into_body().into_data_stream();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => hash.update(&piece),
            Err(_) => return StatusCode::BAD_REQUEST.into_response(),
        }
    }
    let sha256 = hex::encode(hash.finalize());
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if text(DIGEST).is_some_and(|told| told != sha256) {
        return StatusCode::UNPROCESSABLE_ENTITY.into_response();
    }
    let name = url::form_urlencoded::parse(text(NAME).unwrap_or_default().as_bytes())
        .next()
        .map_or_else(String::new, |(name, _)| name.into_owned());
    match cases.receive(case, artifact, &name, &sha256).await {
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Ok(Reaction::HangUp) => hang_up(),
        Ok(Reaction::Status(status, wait)) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            match wait {
                Some(seconds) => {
                    (status, [(header::RETRY_AFTER, seconds.to_string())]).into_response()
                }
                None => status.into_response(),
            }
        }
    }
}

/// A body that fails before its head is sent makes the server break the connection without an answer.
fn hang_up() -> Response {
    let broken = stream::iter([Err::<&str, std::io::Error>(
        std::io::ErrorKind::ConnectionReset.into(),
    )]);
    let mut response = Body::from_stream(broken).into_response();
    // Whoever reads only the head must not take it for a success.
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

async fn look_up(
    State(cases): State<Arc<PaperCases>>,
    Path((case, artifact)): Path<(Uuid, Uuid)>,
) -> StatusCode {
    match cases.known(case, artifact).await {
        Ok(true) => StatusCode::OK,
        Ok(false) => StatusCode::NOT_FOUND,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn forget(State(cases): State<Arc<PaperCases>>, Path(case): Path<Uuid>) -> StatusCode {
    cases.delete_case(case);
    StatusCode::NO_CONTENT
}

async fn evidence(State(cases): State<Arc<PaperCases>>) -> Json<Value> {
    Json(json!({ "evidence": cases.attached() }))
}

async fn calls(State(cases): State<Arc<PaperCases>>) -> Json<Value> {
    Json(json!({ "calls": cases.calls() }))
}

async fn script(State(cases): State<Arc<PaperCases>>, Json(rules): Json<Vec<Rule>>) -> StatusCode {
    cases.script().replace(rules);
    StatusCode::NO_CONTENT
}
