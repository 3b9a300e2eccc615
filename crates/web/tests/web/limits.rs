use std::time::Duration;

use axum::Router;
use axum::routing::get as route_get;
use postrider_web::{MiddlewareOptions, time_limit, with_middleware};

use crate::support::{bytes, call, get, problem};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(10);

fn limited(time_limit: Duration, router: Router) -> Router {
    let options = MiddlewareOptions {
        time_limit,
        ..MiddlewareOptions::default()
    };
    with_middleware(router, options)
}

#[tokio::test]
async fn a_request_that_never_ends_times_out() {
    let router = limited(
        SHORT,
        Router::new().route("/", route_get(std::future::pending::<()>)),
    );
    let response = call(&router, get("/")).await;
    assert_eq!(response.headers()["retry-after"], "1");
    let details = problem(response).await;
    assert_eq!(
        (details.status, details.code.as_str()),
        (503, "request-timeout")
    );
    assert!(details.detail.contains("0.01 s"), "{}", details.detail);
}

#[tokio::test]
async fn a_route_can_have_a_longer_timeout() {
    let slow = || async {
        tokio::time::sleep(SHORT * 10).await;
        "done"
    };
    let route = route_get(slow).layer(time_limit(LONG));
    let response = call(&limited(SHORT, Router::new().route("/", route)), get("/")).await;
    assert_eq!(bytes(response).await, b"done");
}

#[tokio::test]
async fn a_route_can_have_a_shorter_timeout() {
    let route = route_get(std::future::pending::<()>).layer(time_limit(SHORT));
    let response = call(&limited(LONG, Router::new().route("/", route)), get("/")).await;
    assert_eq!(problem(response).await.code, "request-timeout");
}
