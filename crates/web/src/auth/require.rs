//! A layer that requires a scope.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::future::Either;
use tower::{Layer, Service};

use super::caller::unauthorized;
use super::{Authentication, Caller, Scope};

/// Lets only callers with this scope through:
/// `router.route_layer(require(Scope::Submit))`, on axum's and utoipa's routers alike.
#[must_use]
pub fn require(scope: Scope) -> RequireLayer {
    RequireLayer(scope)
}

/// The layer of [`require`].
#[derive(Debug, Clone, Copy)]
pub struct RequireLayer(Scope);

impl<S> Layer<S> for RequireLayer {
    type Service = RequireService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RequireService {
            scope: self.0,
            inner,
        }
    }
}

/// The service of [`require`].
#[derive(Debug, Clone)]
pub struct RequireService<S> {
    scope: Scope,
    inner: S,
}

impl<S> Service<Request> for RequireService<S>
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
            Some(caller) => caller.require_scope(self.scope),
            // Also if the middleware is missing: closed is the safe default.
            None => Err(unauthorized(&Authentication::Missing)),
        };
        match allowed {
            Ok(()) => Either::Right(self.inner.call(request)),
            Err(problem) => Either::Left(ready(Ok(problem.into_response()))),
        }
    }
}
