use std::time::Duration;

use axum::Router;
use axum::routing::get as route_get;
use postrider_web::{MiddlewareOptions, shell, time_limit};

use crate::support::{bytes, call, get, problem};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(10);

fn limited(time_limit: Duration, router: Router) -> Router {
    let options = MiddlewareOptions {
        time_limit,
        ..MiddlewareOptions::default()
    };
    shell(router, options)
}

#[tokio::test]
async fn a_request_that_never_ends_is_ended() {
    let router = limited(
        SHORT,
        Router::new().route("/", route_get(std::future::pending::<()>)),
    );
    let response = call(&router, get("/")).await;
    assert_eq!(response.headers()["retry-after"], "1");
    let told = problem(response).await;
    assert_eq!((told.status, told.code.as_str()), (503, "request-timeout"));
    assert!(told.detail.contains("0.01 s"), "{}", told.detail);
}

#[tokio::test]
async fn a_route_may_have_more_time_than_the_rest() {
    let slow = || async {
        tokio::time::sleep(SHORT * 10).await;
        "done"
    };
    let route = route_get(slow).layer(time_limit(LONG));
    let response = call(&limited(SHORT, Router::new().route("/", route)), get("/")).await;
    assert_eq!(bytes(response).await, b"done");
}

#[tokio::test]
async fn a_route_may_have_less_time_than_the_rest() {
    let route = route_get(std::future::pending::<()>).layer(time_limit(SHORT));
    let response = call(&limited(LONG, Router::new().route("/", route)), get("/")).await;
    assert_eq!(problem(response).await.code, "request-timeout");
}
