//! Everything above, around one router, in the right order.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use crate::auth::{Doorkeeper, Tokens, loopback};
use crate::problem::ProblemPage;
use crate::{body, compression, fallback, observe, security_headers, time_limit};

/// What the program decides about its HTTP side.
#[derive(Debug, Clone)]
pub struct MiddlewareOptions {
    /// Who may call. None: everybody on this machine may do everything.
    pub tokens: Arc<Tokens>,
    /// Route patterns that need no token, such as `/healthz`.
    pub open: Vec<String>,
    /// The largest body, in bytes, where a route sets no limit of its own.
    pub body_limit: usize,
    /// The longest that a request may take, where a route sets no limit of its own.
    pub time_limit: Duration,
    /// How a problem looks to a browser, that is, to whoever asks for `text/html`. None: as JSON, to everybody.
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
/// Compression is outermost, because problems get their final body just inside of it. All the rest is one layer:
/// axum copies everything inside a layer for each request, so that a dozen of them would cost more than most handlers.
pub fn shell(router: Router, options: MiddlewareOptions) -> Router {
    observe::describe();
    let shell = Shell {
        open_to_this_machine: options.tokens.is_empty(),
        doorkeeper: Doorkeeper {
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
        .layer(from_fn_with_state(Arc::new(shell), around))
        .layer(compression::layer())
}

struct Shell {
    open_to_this_machine: bool,
    doorkeeper: Doorkeeper,
    time_limit: Duration,
    problem_page: Option<ProblemPage>,
}

/// The record is outermost, so that whatever happens inside has an id, a log line and a mark; panics are caught
/// outside of everything that could panic, and their answer gets the headers.
async fn around(State(shell): State<Arc<Shell>>, request: Request, next: Next) -> Response {
    observe::observe(shell.problem_page, request, async |request| {
        let mut response = fallback::without_panic(shell.admit(request, next)).await;
        security_headers::add(response.headers_mut());
        response
    })
    .await
}

impl Shell {
    /// A caller is known, or refused, before time or body is spent on the request.
    async fn admit(&self, mut request: Request, next: Next) -> Response {
        if self.open_to_this_machine
            && let Err(problem) = loopback::inspect(&request)
        {
            return problem.into_response();
        }
        let caller = match self.doorkeeper.introduce(&mut request) {
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
