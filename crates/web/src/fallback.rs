//! Answers where no handler answers: unknown paths, wrong methods, panics.

use std::any::Any;

use axum::response::{IntoResponse, Response};
use http::Method;

use crate::error_code::codes;
use crate::problem::Problem;

pub(crate) async fn not_found() -> Problem {
    Problem::new(
        &codes::NOT_FOUND,
        "No route has this path; /openapi.json lists them all.",
    )
}

/// axum adds the `Allow` header.
pub(crate) async fn method_not_allowed(method: Method) -> Problem {
    let method = crate::json::shorten(method.as_str());
    Problem::new(
        &codes::METHOD_NOT_ALLOWED,
        format!("This path does not take {method}; the Allow header lists what it takes."),
    )
}

#[derive(Debug, thiserror::Error)]
#[error("a handler panicked: {0}")]
struct Panicked(String);

pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Response {
    let said = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned());
    Problem::internal(Panicked(said)).into_response()
}
