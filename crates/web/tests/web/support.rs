//! Helpers for requests and responses.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use postrider_web::{MiddlewareOptions, ProblemDetails, with_middleware};
use serde_json::Value;
use tower::ServiceExt;

pub fn get(path: &str) -> Request<Body> {
    request(Method::GET, path, Body::empty())
}

pub fn post_json(path: &str, body: impl Into<Body>) -> Request<Body> {
    let mut request = request(Method::POST, path, body);
    set(&mut request, "content-type", "application/json");
    request
}

pub fn request(method: Method, path: &str, body: impl Into<Body>) -> Request<Body> {
    let builder = Request::builder().method(method).uri(path);
    builder.body(body.into()).unwrap()
}

pub fn set(request: &mut Request<Body>, name: &'static str, value: &str) {
    request.headers_mut().insert(name, value.parse().unwrap());
}

pub fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    set(&mut request, name, value);
    request
}

pub fn default_middleware(router: Router) -> Router {
    with_middleware(router, MiddlewareOptions::default())
}

pub async fn call(router: &Router, request: Request<Body>) -> Response {
    router.clone().oneshot(request).await.unwrap()
}

pub async fn bytes(response: Response) -> Vec<u8> {
    let body = response.into_body().collect().await.unwrap();
    body.to_bytes().to_vec()
}

pub async fn json(response: Response) -> Value {
    serde_json::from_slice(&bytes(response).await).unwrap()
}

/// The problem in a response, after checking that it is valid in every respect.
pub async fn problem(response: Response) -> ProblemDetails {
    let status = response.status();
    assert!(
        status.is_client_error() || status.is_server_error(),
        "{status}"
    );
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let id = response.headers().get("x-request-id").cloned();
    let problem: ProblemDetails = serde_json::from_slice(&bytes(response).await).unwrap();
    assert_eq!(StatusCode::from_u16(problem.status).unwrap(), status);
    assert_eq!(problem.type_uri, format!("/errors/{}", problem.code));
    let id = id.map(|id| id.to_str().unwrap().to_owned());
    assert_eq!(
        problem.request_id, id,
        "the answer and its header name the same request"
    );
    problem
}

/// Status, code and the first invalid field.
pub async fn problem_summary(response: Response) -> (u16, String, Option<String>) {
    let problem = problem(response).await;
    let field = problem.errors.first().map(|error| error.field.clone());
    (problem.status, problem.code, field)
}
