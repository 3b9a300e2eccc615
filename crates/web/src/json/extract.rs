//! The extractor: a request's body as a strictly read value.

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Limits, parse};
use crate::body;
use crate::error_code::codes;
use crate::problem::Problem;

/// A JSON body: strictly read on the way in, plainly written on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        expect_json(request.headers())?;
        let limits = Limits {
            max_bytes: body::request_limit(&request),
            ..Limits::default()
        };
        let bytes = body::read(request).await?;
        Ok(Self(parse(&bytes, &limits)?))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// `application/json` or any `application/…+json`; a charset other than UTF-8 is refused, for JSON
/// has only that one.
fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let only = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().unwrap_or_default(),
        _ => "",
    };
    let mut parts = only.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let is_json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    let is_utf8 = parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
            value.trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    });
    if is_json && is_utf8 {
        return Ok(());
    }
    Err(Problem::new(
        &codes::UNSUPPORTED_MEDIA_TYPE,
        "The body must be JSON: send it with the header `Content-Type: application/json`.",
    ))
}
