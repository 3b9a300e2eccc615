//! The middleware stack around the router, in the right order.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use crate::auth::{Authenticator, Tokens, loopback};
use crate::problem::ProblemPage;
use crate::{body, compression, fallback, observe, security_headers, time_limit};

/// Settings of [`with_middleware`].
#[derive(Debug, Clone)]
pub struct MiddlewareOptions {
    /// Tokens of callers. Empty: every caller on this machine has every scope.
    pub tokens: Arc<Tokens>,
    /// Route patterns that need no token, such as `/healthz`.
    pub open: Vec<String>,
    /// Maximum body size in bytes, unless a route sets its own.
    pub body_limit: usize,
    /// Request timeout, unless a route sets its own.
    pub time_limit: Duration,
    /// Renders problems for clients that accept `text/html`. None: always JSON.
    pub problem_page: Option<ProblemPage>,
}

impl Default for MiddlewareOptions {
    fn default() -> Self {
        Self {
            tokens: Arc::default(),
            open: Vec::new(),
            body_limit: body::DEFAULT_LIMIT,
            time_limit: Duration::from_secs(30),
            problem_page: None,
        }
    }
}

/// Wraps the finished router.
///
/// Compression is outermost, because problems get their final body just inside of it. All the rest is one layer: axum clones
/// everything inside a layer for each request, so a dozen layers would cost more than most handlers.
pub fn with_middleware(router: Router, options: MiddlewareOptions) -> Router {
    observe::describe();
    let middleware = Middleware {
        loopback_only: options.tokens.is_empty(),
        authenticator: Authenticator {
            tokens: options.tokens,
            open: options.open.into(),
        },
        time_limit: options.time_limit,
        problem_page: options.problem_page,
    };
    router
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .layer(body::body_limit(options.body_limit))
        .layer(from_fn_with_state(Arc::new(middleware), handle))
        .layer(compression::layer())
}

struct Middleware {
    loopback_only: bool,
    authenticator: Authenticator,
    time_limit: Duration,
    problem_page: Option<ProblemPage>,
}

/// Observation is outermost, so that everything inside has an id, a log line and metrics. Panics are caught outside of everything
/// that could panic, and their response gets the security headers, too.
async fn handle(
    State(middleware): State<Arc<Middleware>>,
    request: Request,
    next: Next,
) -> Response {
    observe::observe(middleware.problem_page, request, async |request| {
        let mut response = fallback::catch_panic(middleware.run(request, next)).await;
        security_headers::add(response.headers_mut());
        response
    })
    .await
}

impl Middleware {
    /// Authenticates the caller before spending time or reading the body.
    async fn run(&self, mut request: Request, next: Next) -> Response {
        if self.loopback_only
            && let Err(problem) = loopback::check(&request)
        {
            return problem.into_response();
        }
        let caller = match self.authenticator.authenticate(&mut request) {
            Ok(caller) => caller,
            Err(problem) => return problem.into_response(),
        };
        let mut response = time_limit::enforce(self.time_limit, request, next).await;
        // For the access log.
        if let Some(caller) = caller {
            response.extensions_mut().insert(caller);
        }
        response
    }
}
