//! Everything above, around one router, in the right order.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use tower_http::catch_panic::CatchPanicLayer;

use crate::auth::{self, Doorkeeper, Tokens};
use crate::{body, compression, fallback, observe, security_headers, time_limit};

/// What the program decides about its HTTP side.
#[derive(Debug, Clone)]
pub struct ShellOptions {
    /// Who may call. None: everybody on this machine may do everything.
    pub tokens: Arc<Tokens>,
    /// Route patterns that need no token, such as `/healthz`.
    pub open: Vec<String>,
    /// The largest body, in bytes, where a route sets no limit of its own.
    pub body_limit: usize,
    /// The longest that a request may take, where a route sets no limit of its own.
    pub time_limit: Duration,
}

impl Default for ShellOptions {
    fn default() -> Self {
        Self {
            tokens: Arc::default(),
            open: Vec::new(),
            body_limit: body::DEFAULT_LIMIT,
            time_limit: Duration::from_secs(30),
        }
    }
}

/// Wraps the finished router. Read from the bottom up: the last layer meets a request first.
///
/// - compression is outermost, because problems get their final body just inside of it;
/// - then the record, so that whatever happens inside has an id, a log line and a mark;
/// - panics are caught outside of every layer that could panic, and their answer gets the headers;
/// - a caller is known, or refused, before time or body is spent on the request.
pub fn shell(router: Router, options: ShellOptions) -> Router {
    observe::describe();
    let open_to_this_machine = options.tokens.is_empty();
    let doorkeeper = Doorkeeper {
        tokens: options.tokens,
        open: options.open.into(),
    };
    let mut router = router
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::method_not_allowed)
        .layer(body::body_limit(options.body_limit))
        .layer(from_fn_with_state(options.time_limit, time_limit::enforce))
        .layer(from_fn_with_state(doorkeeper, auth::authenticate));
    if open_to_this_machine {
        router = router.layer(from_fn(auth::loopback::guard));
    }
    router
        .layer(CatchPanicLayer::custom(fallback::panicked))
        .layer(from_fn(security_headers::add))
        .layer(from_fn(observe::observe))
        .layer(compression::layer())
}
