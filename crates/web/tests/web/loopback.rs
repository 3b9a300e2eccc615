use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use postrider_web::auth::NewToken;
use postrider_web::{MiddlewareOptions, Scopes, Token, Tokens, with_middleware};

use crate::support::{call, default_middleware, get, post_json, problem, with};

fn routes() -> Router {
    Router::new().route("/retry", post(|| async { "done" }).get(|| async { "seen" }))
}

#[tokio::test]
async fn without_tokens_only_loopback_host_names_are_served() {
    let router = default_middleware(routes());
    for host in [
        "localhost",
        "LOCALHOST:8080",
        "a.localhost:1",
        "127.0.0.1:8080",
        "127.9.9.9",
        "[::1]:8080",
        "localhost.",
    ] {
        let response = call(&router, with(get("/retry"), "host", host)).await;
        assert_eq!(response.status(), 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "0.0.0.0:8080",
        "[::]:8080",
        "a@b@c",
        "2130706433",
    ] {
        let details = problem(call(&router, with(get("/retry"), "host", host)).await).await;
        assert_eq!(
            (details.status, details.code.as_str()),
            (421, "untrusted-host"),
            "{host}"
        );
    }
    let absolute = with(get("http://evil.example/retry"), "host", "localhost");
    assert_eq!(call(&router, absolute).await.status(), 421);
}

#[tokio::test]
async fn without_tokens_cross_origin_requests_are_rejected() {
    let router = default_middleware(routes());
    let local = |request| with(request, "host", "localhost:8080");
    let act = || local(post_json("/retry", ""));
    for request in [
        with(act(), "origin", "https://evil.example"),
        with(act(), "origin", "http://localhost:3000"),
        with(act(), "origin", "null"),
        with(act(), "sec-fetch-site", "cross-site"),
        with(act(), "sec-fetch-site", "same-site"),
    ] {
        let details = problem(call(&router, request).await).await;
        assert_eq!(
            (details.status, details.code.as_str()),
            (403, "cross-origin")
        );
    }
    for request in [
        act(),
        with(act(), "origin", "http://localhost:8080"),
        with(act(), "sec-fetch-site", "same-origin"),
        with(local(get("/retry")), "origin", "https://evil.example"),
    ] {
        assert_eq!(call(&router, request).await.status(), 200);
    }
}

#[tokio::test]
async fn with_tokens_any_host_name_is_served() {
    let new = NewToken::generate();
    let token = Token::new("a", &new.sha256(), Scopes::all()).unwrap();
    let options = MiddlewareOptions {
        tokens: Arc::new(Tokens::new(vec![token]).unwrap()),
        ..MiddlewareOptions::default()
    };
    let request = with(get("/retry"), "host", "postrider.example");
    let request = with(
        request,
        "authorization",
        &format!("Bearer {}", new.secret()),
    );
    assert_eq!(
        call(&with_middleware(routes(), options), request)
            .await
            .status(),
        200
    );
}
