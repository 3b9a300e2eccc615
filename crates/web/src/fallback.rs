//! Responses without a handler: unknown paths, wrong methods, panics.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
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
        format!(
            "This path doesn't support {method}; the Allow header lists the supported methods."
        ),
    )
}

#[derive(Debug, thiserror::Error)]
#[error("a handler panicked: {0}")]
struct Panicked(String);

/// Turns a handler's panic into a 500. Shared state is protected by the database or by locks that recover.
pub(crate) async fn catch_panic(response: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(response)
        .catch_unwind()
        .await
        .unwrap_or_else(panicked)
}

fn panicked(payload: Box<dyn Any + Send>) -> Response {
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned());
    Problem::internal(Panicked(message)).into_response()
}
