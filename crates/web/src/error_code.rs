//! The closed list of error codes, each with its page.
//!
//! A code is a promise to clients: it never changes its meaning. A crate declares its codes in one table with
//! [`error_codes!`](crate::error_codes). The table embeds the page `errors/<code>.md` of the declaring crate, so a code without a
//! page doesn't compile.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};

use crate::params::Path;
use crate::problem::Problem;

/// One kind of error that clients can distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode {
    /// The stable name, in kebab-case.
    pub code: &'static str,
    /// The HTTP status of the response.
    pub status: StatusCode,
    /// A short description, the same for every occurrence.
    pub title: &'static str,
    /// The explanation for people, in Markdown.
    pub page: &'static str,
}

impl ErrorCode {
    /// Path of the explanation, and `type` of the problem.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("/errors/{}", self.code)
    }
}

/// Declares a crate's error codes as constants, and all of them together as `ALL`.
///
/// ```
/// mod codes {
///     postrider_web::error_codes! {
///         /// Nothing has this id.
///         NOT_FOUND = "not-found", NOT_FOUND, "Not found";
///     }
/// }
///
/// assert_eq!(codes::NOT_FOUND.uri(), "/errors/not-found");
/// assert_eq!(codes::ALL.len(), 1);
/// ```
///
/// Each line has the constant's name, the code (whose page is `errors/not-found.md` of the crate), the name of a constant of
/// [`http::StatusCode`], and the title.
#[macro_export]
macro_rules! error_codes {
    ($( $(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $title:literal; )+) => {
        $(
            $(#[$doc])*
            pub const $name: $crate::ErrorCode = $crate::ErrorCode {
                code: $code,
                status: $crate::error_code::Status::$status,
                title: $title,
                page: include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/errors/",
                    $code,
                    ".md"
                )),
            };
        )+
        /// All codes of this table.
        pub const ALL: &[$crate::ErrorCode] = &[$($name),+];
    };
}

#[doc(hidden)]
pub use http::StatusCode as Status;

/// The codes that every part of the API can return.
pub mod codes {
    crate::error_codes! {
        /// The body is not valid JSON.
        INVALID_JSON = "invalid-json", BAD_REQUEST, "The body is not valid JSON";
        /// The body ended before its announced length.
        INCOMPLETE_BODY = "incomplete-body", BAD_REQUEST, "The body did not arrive completely";
        /// A value in the path is invalid.
        INVALID_PATH = "invalid-path", BAD_REQUEST, "A value in the path is invalid";
        /// The query has an unknown parameter or an invalid value.
        INVALID_QUERY = "invalid-query", BAD_REQUEST, "The query string is invalid";
        /// The cursor is not from this list.
        INVALID_CURSOR = "invalid-cursor", BAD_REQUEST, "The cursor is invalid";
        /// The request has no valid token.
        UNAUTHORIZED = "unauthorized", UNAUTHORIZED, "A valid token is required";
        /// The token is valid but lacks the scope.
        FORBIDDEN = "forbidden", FORBIDDEN, "The token lacks the required scope";
        /// A web page of another origin tried to act on an open server.
        CROSS_ORIGIN = "cross-origin", FORBIDDEN, "Requests from other origins are not allowed";
        /// The form is not from this session.
        FORM_EXPIRED = "form-expired", FORBIDDEN, "The form is no longer valid";
        /// There is nothing at this path.
        NOT_FOUND = "not-found", NOT_FOUND, "Not found";
        /// The path exists but doesn't support this method.
        METHOD_NOT_ALLOWED = "method-not-allowed", METHOD_NOT_ALLOWED, "The method is not allowed here";
        /// The idempotency key was used for a different request.
        IDEMPOTENCY_MISMATCH = "idempotency-mismatch", CONFLICT, "The key was used for another request";
        /// The body is larger than the route's limit.
        BODY_TOO_LARGE = "body-too-large", PAYLOAD_TOO_LARGE, "The body is too large";
        /// The route doesn't support the body's content type.
        UNSUPPORTED_MEDIA_TYPE = "unsupported-media-type", UNSUPPORTED_MEDIA_TYPE, "The content type is not supported";
        /// The request's host is not this machine, and no tokens are configured.
        UNTRUSTED_HOST = "untrusted-host", MISDIRECTED_REQUEST, "The host name is not served here";
        /// The JSON is well-formed but doesn't match the route's schema.
        INVALID_BODY = "invalid-body", UNPROCESSABLE_ENTITY, "The body does not have the expected shape";
        /// An object has the same key twice.
        DUPLICATE_KEY = "duplicate-key", UNPROCESSABLE_ENTITY, "A key occurs twice in one object";
        /// The JSON is nested deeper than allowed.
        JSON_TOO_DEEP = "json-too-deep", UNPROCESSABLE_ENTITY, "The JSON is nested too deeply";
        /// A string or key contains U+0000.
        NUL_CHARACTER = "nul-character", UNPROCESSABLE_ENTITY, "The NUL character can't be stored";
        /// A string or key contains half of a surrogate pair.
        LONE_SURROGATE = "lone-surrogate", UNPROCESSABLE_ENTITY, "A string contains half of a surrogate pair";
        /// A number would change its value when stored.
        INEXACT_NUMBER = "inexact-number", UNPROCESSABLE_ENTITY, "A number can't be stored exactly";
        /// A well-formed value is not acceptable.
        INVALID_VALUE = "invalid-value", UNPROCESSABLE_ENTITY, "A value is invalid";
        /// Something failed that the client can't fix.
        INTERNAL_ERROR = "internal-error", INTERNAL_SERVER_ERROR, "Internal server error";
        /// The request timed out.
        REQUEST_TIMEOUT = "request-timeout", SERVICE_UNAVAILABLE, "The request took too long";
        /// Another request with the same idempotency key is still in progress.
        REQUEST_IN_PROGRESS = "request-in-progress", SERVICE_UNAVAILABLE, "The same request is in progress";
        /// The server is shutting down.
        SHUTTING_DOWN = "shutting-down", SERVICE_UNAVAILABLE, "The server is shutting down";
        /// The database has no capacity for this request right now.
        DATABASE_BUSY = "database-busy", SERVICE_UNAVAILABLE, "The database is busy";
        /// The database is unavailable.
        DATABASE_UNAVAILABLE = "database-unavailable", SERVICE_UNAVAILABLE, "The database is unavailable";
        /// The database has run out of disk space, memory or connections.
        DATABASE_EXHAUSTED = "database-exhausted", SERVICE_UNAVAILABLE, "The database has run out of resources";
    }
}

/// Two tables declare the same code.
#[derive(Debug, thiserror::Error)]
#[error("the error code `{0}` is declared twice: rename one of them")]
pub struct DuplicateCode(&'static str);

/// All error codes of the program.
#[derive(Debug, Clone)]
pub struct ErrorCatalogue(BTreeMap<&'static str, ErrorCode>);

impl ErrorCatalogue {
    /// Joins this crate's table with those of the services.
    ///
    /// # Errors
    /// If two tables declare the same code.
    pub fn new<'a>(
        tables: impl IntoIterator<Item = &'a [ErrorCode]>,
    ) -> Result<Self, DuplicateCode> {
        let mut all = BTreeMap::new();
        let tables = std::iter::once(codes::ALL).chain(tables);
        for code in tables.flatten() {
            if all.insert(code.code, *code).is_some() {
                return Err(DuplicateCode(code.code));
            }
        }
        Ok(Self(all))
    }

    /// The code with this name.
    #[must_use]
    pub fn get(&self, code: &str) -> Option<&ErrorCode> {
        self.0.get(code)
    }

    /// All codes, by name.
    pub fn iter(&self) -> impl Iterator<Item = &ErrorCode> {
        self.0.values()
    }

    /// `GET /errors` (the list) and `GET /errors/{code}` (one page), as plain text, which browsers and terminals both show.
    pub fn routes<S: Clone + Send + Sync + 'static>(self) -> axum::Router<S> {
        axum::Router::new()
            .route("/errors", get(list))
            .route("/errors/{code}", get(page))
            .with_state(std::sync::Arc::new(self))
    }
}

async fn list(State(catalogue): State<std::sync::Arc<ErrorCatalogue>>) -> Response {
    let lines = catalogue
        .iter()
        .map(|code| format!("{} {} {}\n", code.status.as_u16(), code.uri(), code.title));
    text(lines.collect::<String>())
}

async fn page(
    State(catalogue): State<std::sync::Arc<ErrorCatalogue>>,
    Path(code): Path<String>,
) -> Result<Response, Problem> {
    match catalogue.get(&code) {
        Some(code) => Ok(text(code.page)),
        None => Err(Problem::new(
            &codes::NOT_FOUND,
            "No error code has this name; /errors lists them all.",
        )),
    }
}

fn text(body: impl Into<axum::body::Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    (headers, body.into()).into_response()
}
