use axum::Router;
use axum::body::Body;
use axum::response::{Html, IntoResponse};
use axum::routing::{get as route_get, post};
use http::{Method, header};

use crate::support::{bytes, call, default_middleware, get, problem, request, with};

const TEXT: &str = "All work and no play makes Jack a dull boy. ";

fn router() -> Router {
    let large = || async { TEXT.repeat(100) };
    let events = || async {
        (
            [(header::CONTENT_TYPE, "text/event-stream")],
            TEXT.repeat(100),
        )
    };
    let archive = || async {
        (
            [(header::CONTENT_TYPE, "application/zip")],
            TEXT.repeat(100),
        )
    };
    let own = || async {
        let headers = [
            (header::CACHE_CONTROL, "max-age=60"),
            (header::CONTENT_SECURITY_POLICY, "sandbox"),
        ];
        (headers, "mine").into_response()
    };
    default_middleware(
        Router::new()
            .route("/large", route_get(large))
            .route("/events", route_get(events))
            .route("/archive", route_get(archive))
            .route("/small", route_get(|| async { "small" }))
            .route("/page", route_get(|| async { Html("<p>hello</p>") }))
            .route("/own", route_get(own))
            .route("/post", post(|| async {}).put(|| async {})),
    )
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_problems() {
    let details = problem(call(&router(), get("/nowhere")).await).await;
    assert_eq!((details.status, details.code.as_str()), (404, "not-found"));
    let wrong = call(&router(), get("/post")).await;
    let allow = wrong.headers()["allow"].to_str().unwrap().to_owned();
    assert!(allow.contains("POST") && allow.contains("PUT"), "{allow}");
    let details = problem(wrong).await;
    assert_eq!(
        (details.status, details.code.as_str()),
        (405, "method-not-allowed")
    );
    assert!(details.detail.contains("GET"));
}

#[tokio::test]
async fn a_problem_for_head_has_no_body() {
    let response = call(&router(), request(Method::HEAD, "/nowhere", Body::empty())).await;
    assert_eq!(response.status(), 404);
    assert!(bytes(response).await.is_empty());
}

#[tokio::test]
async fn every_response_has_the_security_headers() {
    for path in ["/small", "/nowhere", "/post"] {
        let response = call(&router(), get(path)).await;
        let headers = response.headers();
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers["x-frame-options"], "DENY");
        assert!(
            headers["content-security-policy"]
                .to_str()
                .unwrap()
                .starts_with("default-src 'none'")
        );
    }
    let page = call(&router(), get("/page")).await;
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"));
    let own = call(&router(), get("/own")).await;
    assert_eq!(own.headers()["cache-control"], "max-age=60");
    assert_eq!(own.headers()["content-security-policy"], "sandbox");
}

#[tokio::test]
async fn large_text_is_compressed_and_streams_and_archives_are_not() {
    for (path, accepted, encoding) in [
        ("/large", "gzip", Some("gzip")),
        ("/large", "br", Some("br")),
        ("/large", "identity", None),
        ("/small", "gzip", None),
        ("/events", "gzip, br", None),
        ("/archive", "gzip, br", None),
    ] {
        let response = call(&router(), with(get(path), "accept-encoding", accepted)).await;
        let found = response.headers().get("content-encoding").cloned();
        assert_eq!(
            found.as_ref().map(|value| value.to_str().unwrap()),
            encoding,
            "{path} {accepted}"
        );
        let length = bytes(response).await.len();
        assert_eq!(
            length < 1000,
            encoding.is_some() || path == "/small",
            "{path}: {length}"
        );
    }
}
