//! Error responses: RFC 9457 problem documents.
//!
//! [`ProblemDetails`] is what the client sees. The cause of a server error stays in the [`Problem`] and is logged with the
//! request's id; it's never part of the response.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error_code::{ErrorCode, codes};
use crate::request_id::RequestId;
use crate::security_headers;

/// The media type of problem documents.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// What is wrong with one value of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// A JSON pointer into the body, or the name of a parameter or header.
    pub field: String,
    /// Why it's invalid.
    pub reason: String,
}

/// The response to a failed request (RFC 9457).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProblemDetails {
    /// Path of the page that explains this kind of problem.
    #[serde(rename = "type")]
    #[schema(example = "/errors/not-found")]
    pub type_uri: String,
    /// Short description of this kind of problem.
    pub title: String,
    /// The HTTP status, repeated.
    pub status: u16,
    /// What happened, and what to do about it.
    pub detail: String,
    /// Stable name of this kind of problem, for programs to compare.
    #[schema(example = "not-found")]
    pub code: String,
    /// The request's id in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The invalid values, if that is the problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Further members, documented with the code.
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

/// Renders a problem as an HTML page without inline scripts or styles.
pub type ProblemPage = fn(&ProblemDetails) -> String;

/// An error on its way to the client.
#[derive(Clone)]
pub struct Problem(Box<Inner>);

#[derive(Clone)]
struct Inner {
    status: StatusCode,
    details: ProblemDetails,
    headers: Vec<(HeaderName, HeaderValue)>,
    cause: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Problem {
    /// A problem of this kind. The client sees the detail: it says what to do and contains no secrets.
    #[must_use]
    pub fn new(code: &ErrorCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            status: code.status,
            details: ProblemDetails {
                type_uri: code.uri(),
                title: code.title.to_owned(),
                status: code.status.as_u16(),
                detail: detail.into(),
                code: code.code.to_owned(),
                request_id: None,
                errors: Vec::new(),
                more: serde_json::Map::new(),
            },
            headers: Vec::new(),
            cause: None,
        }))
    }

    /// An internal error: the client gets the request's id, the log gets the cause.
    #[must_use]
    pub fn internal(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(
            &codes::INTERNAL_ERROR,
            "The server failed to handle the request; its log has the cause under the request id.",
        )
        .caused_by(cause)
    }

    /// Adds an invalid value.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>, reason: impl Into<String>) -> Self {
        self.0.details.errors.push(FieldError {
            field: field.into(),
            reason: reason.into(),
        });
        self
    }

    /// Adds a member that the code's page documents.
    #[must_use]
    pub fn with(mut self, member: &'static str, value: impl Into<serde_json::Value>) -> Self {
        self.0.details.more.insert(member.to_owned(), value.into());
        self
    }

    /// Tells the client when to try again (whole seconds, at least one).
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.header(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)))
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Keeps the cause for the log.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.cause = Some(Arc::from(cause.into()));
        self
    }

    /// The response's status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// What the client sees.
    #[must_use]
    pub fn details(&self) -> &ProblemDetails {
        &self.0.details
    }

    /// Adds the request's id.
    pub(crate) fn with_request_id(mut self, id: &RequestId) -> Self {
        self.0.details.request_id = Some(id.to_string());
        self
    }

    fn render(&self) -> Body {
        // These types cannot fail to serialise; an empty body would still carry the status.
        serde_json::to_vec(&self.0.details).map_or_else(|_| Body::empty(), Body::from)
    }

    /// Replaces the body of the answer that this problem became by one with the request's id.
    pub(crate) fn render_into(&self, response: &mut Response) {
        *response.body_mut() = self.render();
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }

    /// Replaces the body by an HTML page.
    pub(crate) fn render_page_into(&self, page: ProblemPage, response: &mut Response) {
        *response.body_mut() = Body::from(page(&self.0.details));
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, html);
        let policy = HeaderValue::from_static(security_headers::PAGE_POLICY);
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(self.render());
        *response.status_mut() = self.0.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        for (name, value) in &self.0.headers {
            headers.append(name, value.clone());
        }
        // The outer layer adds the request's id and logs the cause.
        response.extensions_mut().insert(self);
        response
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problem")
            .field("details", &self.0.details)
            .field("cause", &self.0.cause)
            .finish()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.details.code, self.0.details.detail)
    }
}

impl StdError for Problem {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as _)
    }
}
