//! A scope as the price of a route.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::future::Either;
use tower::{Layer, Service};

use super::caller::refusal;
use super::{Authentication, Caller, Scope};

/// Lets only callers with the scope through:
/// `router.route_layer(require(Scope::Submit))`, on axum's and utoipa's routers alike.
#[must_use]
pub fn require(scope: Scope) -> Require {
    Require(scope)
}

/// The layer made by [`require`].
#[derive(Debug, Clone, Copy)]
pub struct Require(Scope);

impl<S> Layer<S> for Require {
    type Service = Required<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Required {
            scope: self.0,
            inner,
        }
    }
}

/// The service made by [`require`].
#[derive(Debug, Clone)]
pub struct Required<S> {
    scope: Scope,
    inner: S,
}

impl<S> Service<Request> for Required<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response, Infallible>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let allowed = match request.extensions().get::<Caller>() {
            Some(caller) => caller.must_have(self.scope),
            // Also where the shell is missing: closed is the safe mistake.
            None => Err(refusal(&Authentication::Missing)),
        };
        match allowed {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(problem) => Either::Left(ready(Ok(problem.into_response()))),
        }
    }
}
