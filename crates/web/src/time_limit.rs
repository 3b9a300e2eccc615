//! Every request ends in time.
//!
//! The limit runs from the request's head to the answer's head: a stream that has begun is not cut.
//! A route that needs longer (or must be quicker) sets its own limit with [`time_limit`].

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service};

use crate::error_code::codes;
use crate::problem::Problem;

/// When the request must be over; shared with the layers inside, which may move it.
#[derive(Debug, Clone)]
struct Deadline(Arc<Mutex<Clock>>);

#[derive(Debug, Clone, Copy)]
struct Clock {
    started: Instant,
    limit: Duration,
}

impl Deadline {
    fn new(limit: Duration) -> Self {
        let started = Instant::now();
        Self(Arc::new(Mutex::new(Clock { started, limit })))
    }

    fn get(&self) -> Clock {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, limit: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).limit = limit;
    }
}

impl Clock {
    fn at(self) -> Instant {
        // A limit beyond the clock's range means no limit; a day is as good.
        let day = Duration::from_secs(86_400);
        self.started
            .checked_add(self.limit)
            .unwrap_or(self.started + day)
    }
}

/// The outer layer: ends the request at its deadline. Work that was under way is dropped, which
/// rolls back an open transaction.
pub(crate) async fn enforce(
    State(limit): State<Duration>,
    mut request: Request,
    next: Next,
) -> Response {
    let deadline = Deadline::new(limit);
    request.extensions_mut().insert(deadline.clone());
    let mut answer = pin!(next.run(request));
    loop {
        let clock = deadline.get();
        if let Ok(response) = timeout_at(clock.at(), &mut answer).await {
            return response;
        }
        // The route may have moved its deadline meanwhile.
        if deadline.get().at() <= clock.at() {
            return expired(clock.limit).into_response();
        }
    }
}

fn expired(limit: Duration) -> Problem {
    let seconds = limit.as_secs_f64();
    Problem::new(
        &codes::REQUEST_TIMEOUT,
        format!(
            "The request was not finished within {seconds} s. Whether it took effect is unknown: repeat it with the same idempotency key, or look it up."
        ),
    )
    .retry_after(Duration::from_secs(1))
}

/// Sets a route's own time limit in place of the program's.
#[must_use]
pub fn time_limit(limit: Duration) -> TimeLimit {
    TimeLimit(limit)
}

/// The layer made by [`time_limit`].
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

/// The service made by [`time_limit`].
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
        if let Some(deadline) = request.extensions().get::<Deadline>() {
            deadline.set(self.limit);
        }
        self.inner.call(request)
    }
}
