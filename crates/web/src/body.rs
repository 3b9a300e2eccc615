//! Reads a request's body up to the route's limit.

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::AddExtension;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower::Layer;

use crate::error_code::codes;
use crate::problem::Problem;

/// Maximum body size without a [`body_limit`] layer.
pub const DEFAULT_LIMIT: usize = 1024 * 1024;

/// The limit in the request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimit(usize);

/// Sets the maximum body size in bytes. The innermost limit applies, so a route can accept more or less than the rest.
#[must_use]
pub fn body_limit(bytes: usize) -> BodyLimitLayer {
    BodyLimitLayer(bytes)
}

/// The layer of [`body_limit`].
#[derive(Debug, Clone, Copy)]
pub struct BodyLimitLayer(usize);

impl<S> Layer<S> for BodyLimitLayer
where
    DefaultBodyLimit: Layer<S>,
{
    type Service = AddExtensionTo<<DefaultBodyLimit as Layer<S>>::Service>;

    fn layer(&self, inner: S) -> Self::Service {
        // axum's own extractors obey the same limit.
        let inner = DefaultBodyLimit::max(self.0).layer(inner);
        axum::Extension(BodyLimit(self.0)).layer(inner)
    }
}

type AddExtensionTo<S> = AddExtension<S, BodyLimit>;

/// The limit of this request.
#[must_use]
pub fn request_limit(request: &Request) -> usize {
    let set = request.extensions().get::<BodyLimit>();
    set.map_or(DEFAULT_LIMIT, |limit| limit.0)
}

/// Reads the whole body.
///
/// # Errors
/// If it's larger than the limit (an announced length is rejected before a byte is read), or the client stopped sending.
pub async fn read(request: Request<Body>) -> Result<Bytes, Problem> {
    let limit = request_limit(&request);
    read_up_to(request, limit).await
}

/// Reads the whole body with the handler's own limit instead of the route's.
///
/// # Errors
/// As [`read`].
pub async fn read_up_to(request: Request<Body>, limit: usize) -> Result<Bytes, Problem> {
    let announced = axum::body::HttpBody::size_hint(request.body()).lower();
    if usize::try_from(announced).map_or(true, |length| length > limit) {
        return Err(too_large(limit));
    }
    match Limited::new(request.into_body(), limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if is_length_error(error.as_ref()) => Err(too_large(limit)),
        Err(error) => Err(Problem::new(
            &codes::INCOMPLETE_BODY,
            "The connection ended before the body was complete: send the request again.",
        )
        .caused_by(error)),
    }
}

fn is_length_error(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .any(|error| error.is::<LengthLimitError>())
}

fn too_large(limit: usize) -> Problem {
    Problem::new(
        &codes::BODY_TOO_LARGE,
        format!("The body is larger than {limit} bytes, the maximum here."),
    )
    .with("limit", limit)
}
