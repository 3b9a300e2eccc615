//! One line in the log and one mark in the metrics for every request, however it ends.
//!
//! Lines of requests that went well are for `debug`: at thousands a second they would cost more than many a request
//! and hide the others. What was refused is told at `info`, what failed at `warn`.
//!
//! The path that is logged is the route's pattern, never the address itself: neither query strings
//! nor ids of customers nor headers reach the log, and the number of metric series stays bounded.

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

/// What is recorded when the client left before the answer.
const CLIENT_GONE: u16 = 499;

/// Tells the metrics recorder what the HTTP metrics mean.
pub fn describe() {
    describe_counter!(
        REQUESTS,
        Unit::Count,
        "HTTP requests by method, route and status (499: the client left before the answer)"
    );
    describe_histogram!(
        DURATION,
        Unit::Seconds,
        "Time from a request's head to its answer's head"
    );
}

/// Makes the names appear before the first request, by the one that is sure to come: a scrape.
pub fn register() {
    describe();
    counter!(REQUESTS, "method" => "GET", "path" => "/metrics", "status" => "200").increment(0);
    let _ = histogram!(DURATION, "method" => "GET", "path" => "/metrics");
}

/// Gives the request its id, runs it in a span, finishes problems, logs and measures.
pub(crate) async fn observe(
    page: Option<ProblemPage>,
    mut request: Request,
    answer: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let page = page.filter(|_| asks_for_a_page(request.headers()));
    let id = RequestId::from_headers(request.headers()).unwrap_or_else(RequestId::generate);
    request.extensions_mut().insert(id.clone());
    let mut record = Record::of(&request, id.clone());
    let span = tracing::info_span!(
        "request",
        request_id = id.as_str(),
        method = record.method,
        path = record.path(),
    );

    let mut response = answer(request).instrument(span).await;

    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let problem = problem.identified(&id);
        match page {
            Some(page) => problem.render_page_into(page, &mut response),
            None => problem.render_into(&mut response),
        }
        log_cause(&problem, &id);
    }
    response.headers_mut().insert(HEADER, id.as_header());
    record.caller = response.extensions_mut().remove::<Caller>();
    record.status = response.status().as_u16();
    response
}

/// Browsers name `text/html` when they open an address; programs do not.
fn asks_for_a_page(headers: &HeaderMap) -> bool {
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
        tracing::info!(request_id = id.as_str(), code, cause, "request refused");
    }
}

/// Writes the line and the marks when it is dropped, so that a request whose client has left is
/// recorded as well.
struct Record {
    id: RequestId,
    method: &'static str,
    path: Option<MatchedPath>,
    caller: Option<Caller>,
    status: u16,
    started: Instant,
}

impl Record {
    fn of(request: &Request, id: RequestId) -> Self {
        Self {
            id,
            method: method_label(request.method()),
            path: request.extensions().get::<MatchedPath>().cloned(),
            caller: None,
            status: CLIENT_GONE,
            started: Instant::now(),
        }
    }

    fn path(&self) -> &str {
        self.path.as_ref().map_or("unmatched", MatchedPath::as_str)
    }
}

/// The macro wants a level that is known when it is compiled.
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

impl Drop for Record {
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

/// Methods are the client's words: only the known ones become labels.
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
