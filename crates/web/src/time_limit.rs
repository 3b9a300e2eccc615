//! Request timeouts.
//!
//! The timeout covers the time from the request's head to the response's head: a stream that has started isn't cut. A route that
//! needs a longer or shorter one sets it with [`time_limit`].

use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service};

use crate::error_code::codes;
use crate::problem::Problem;

/// The request's limit, shared with inner layers, which may change it.
#[derive(Debug, Clone)]
struct CurrentLimit(watch::Sender<Duration>);

/// Ends the request at its limit. Dropping the handler rolls back an open transaction.
pub(crate) async fn enforce(limit: Duration, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let (sender, mut current) = watch::channel(limit);
    request.extensions_mut().insert(CurrentLimit(sender));
    let mut response = pin!(next.run(request));
    loop {
        let limit = *current.borrow_and_update();
        let left = limit.saturating_sub(started.elapsed());
        tokio::select! {
            biased;
            response = &mut response => return response,
            Ok(()) = current.changed() => {}
            () = sleep(left) => return expired(limit).into_response(),
        }
    }
}

fn expired(limit: Duration) -> Problem {
    let seconds = limit.as_secs_f64();
    Problem::new(
        &codes::REQUEST_TIMEOUT,
        format!(
            "The request timed out after {seconds} s. It may or may not have taken effect: repeat it with the same idempotency key, or look it up."
        ),
    )
    .retry_after(Duration::from_secs(1))
}

/// Sets a route's own timeout instead of the program's.
#[must_use]
pub fn time_limit(limit: Duration) -> TimeLimit {
    TimeLimit(limit)
}

/// The layer of [`time_limit`].
#[derive(Debug, Clone, Copy)]
pub struct TimeLimit(Duration);

impl<S> Layer<S> for TimeLimit {
    type Service = TimeLimited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        TimeLimited {
            limit: self.0,
            inner,
        }
    }
}

/// The service of [`time_limit`].
#[derive(Debug, Clone)]
pub struct TimeLimited<S> {
    limit: Duration,
    inner: S,
}

impl<S: Service<Request>> Service<Request> for TimeLimited<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if let Some(current) = request.extensions().get::<CurrentLimit>() {
            current.0.send_replace(self.limit);
        }
        self.inner.call(request)
    }
}
