//! Problems as pages for browsers.

use axum::Router;
use axum::routing::get as route_get;
use http::StatusCode;
use postrider_web::{MiddlewareOptions, ProblemDetails, with_middleware};

use crate::support::{bytes, call, get, problem, with};

fn page(problem: &ProblemDetails) -> String {
    let id = problem.request_id.clone().unwrap_or_default();
    format!("<h1>{}</h1><p>{id}</p>", problem.title)
}

async fn broken() -> &'static str {
    panic!("broken")
}

fn router() -> Router {
    let options = MiddlewareOptions {
        problem_page: Some(page),
        ..MiddlewareOptions::default()
    };
    with_middleware(Router::new().route("/broken", route_get(broken)), options)
}

#[tokio::test]
async fn a_browser_gets_a_page_and_a_program_gets_json() {
    for (path, status) in [
        ("/nowhere", StatusCode::NOT_FOUND),
        ("/broken", StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        let accept = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8";
        let answer = call(&router(), with(get(path), "accept", accept)).await;
        assert_eq!(answer.status(), status);
        let headers = answer.headers();
        assert_eq!(headers["content-type"], "text/html; charset=utf-8");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'self'"), "{policy}");
        let id = headers["x-request-id"].to_str().unwrap().to_owned();
        let text = String::from_utf8(bytes(answer).await).unwrap();
        assert!(text.starts_with("<h1>") && text.contains(&id), "{text}");

        let answer = call(&router(), with(get(path), "accept", "*/*")).await;
        assert_eq!(problem(answer).await.status, status.as_u16());
        let answer = call(&router(), get(path)).await;
        assert_eq!(problem(answer).await.status, status.as_u16());
    }
}
