//! One log line and one count in the metrics for every request, however it ends.
//!
//! Successful requests are logged at `debug`: at thousands per second the lines would cost more than many requests and hide the
//! others. Client errors are logged at `info`, server errors at `warn`.
//!
//! The logged path is the route's pattern, never the URL itself: no query strings, customers' ids or headers reach the log, and
//! the number of metric series stays bounded.

use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::{HeaderMap, Method, header};
use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};
use tracing::Instrument;

use crate::auth::Caller;
use crate::problem::{Problem, ProblemPage};
use crate::request_id::{HEADER, RequestId};

const REQUESTS: &str = "http_requests_total";
const DURATION: &str = "http_request_duration_seconds";

/// The recorded status if the client disconnected before the response.
const CLIENT_CLOSED: u16 = 499;

/// Describes the HTTP metrics.
pub fn describe() {
    describe_counter!(
        REQUESTS,
        Unit::Count,
        "HTTP requests by method, route and status (499: the client disconnected before the response)"
    );
    describe_histogram!(
        DURATION,
        Unit::Seconds,
        "Time from the request's head to the response's head"
    );
}

/// Makes the metrics appear before the first request, with the labels of a scrape.
pub fn register() {
    describe();
    counter!(REQUESTS, "method" => "GET", "path" => "/metrics", "status" => "200").increment(0);
    let _ = histogram!(DURATION, "method" => "GET", "path" => "/metrics");
}

/// Assigns the request id, runs the request in a span, renders problems, logs and measures.
pub(crate) async fn observe(
    page: Option<ProblemPage>,
    mut request: Request,
    respond: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let page = page.filter(|_| accepts_html(request.headers()));
    let id = RequestId::from_headers(request.headers()).unwrap_or_else(RequestId::generate);
    request.extensions_mut().insert(id.clone());
    let mut log = RequestLog::start(&request, id.clone());
    let span = tracing::info_span!(
        "request",
        request_id = id.as_str(),
        method = log.method,
        path = log.path(),
    );

    let mut response = respond(request).instrument(span).await;

    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let problem = problem.with_request_id(&id);
        match page {
            Some(page) => problem.render_page_into(page, &mut response),
            None => problem.render_into(&mut response),
        }
        log_cause(&problem, &id);
    }
    response.headers_mut().insert(HEADER, id.as_header());
    log.caller = response.extensions_mut().remove::<Caller>();
    log.status = response.status().as_u16();
    response
}

/// Browsers accept `text/html` when they open a URL; programs don't.
fn accepts_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept.is_some_and(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.contains("text/html"))
    })
}

fn log_cause(problem: &Problem, id: &RequestId) {
    let Some(cause) = std::error::Error::source(problem) else {
        return;
    };
    let causes: Vec<String> = std::iter::successors(Some(cause), |cause| cause.source())
        .map(ToString::to_string)
        .collect();
    let (code, cause) = (&problem.details().code, causes.join(": "));
    if problem.status().is_server_error() {
        tracing::error!(request_id = id.as_str(), code, cause, "request failed");
    } else {
        tracing::info!(request_id = id.as_str(), code, cause, "request rejected");
    }
}

/// Logs and counts the request on drop, so that a request whose client disconnected is recorded, too.
struct RequestLog {
    id: RequestId,
    method: &'static str,
    path: Option<MatchedPath>,
    caller: Option<Caller>,
    status: u16,
    started: Instant,
}

impl RequestLog {
    fn start(request: &Request, id: RequestId) -> Self {
        Self {
            id,
            method: method_label(request.method()),
            path: request.extensions().get::<MatchedPath>().cloned(),
            caller: None,
            status: CLIENT_CLOSED,
            started: Instant::now(),
        }
    }

    fn path(&self) -> &str {
        self.path.as_ref().map_or("unmatched", MatchedPath::as_str)
    }
}

/// tracing's macros need the level at compile time.
macro_rules! line {
    ($level:ident, $record:expr, $took:expr) => {
        tracing::$level!(
            request_id = $record.id.as_str(),
            method = $record.method,
            path = $record.path(),
            status = $record.status,
            caller = $record.caller.as_ref().map(Caller::name),
            duration_ms = $took.as_secs_f64() * 1000.0,
            "request"
        )
    };
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let took: Duration = self.started.elapsed();
        match self.status {
            500.. => line!(warn, self, took),
            400.. => line!(info, self, took),
            _ => line!(debug, self, took),
        }
        let path = self.path().to_owned();
        counter!(REQUESTS, "method" => self.method, "path" => path.clone(), "status" => self.status.to_string())
            .increment(1);
        histogram!(DURATION, "method" => self.method, "path" => path).record(took);
    }
}

/// Clients can send any method: only known ones become labels.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
