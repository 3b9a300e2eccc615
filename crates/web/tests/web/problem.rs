use std::time::Duration;

use axum::response::IntoResponse;
use postrider_web::Problem;
use postrider_web::error_code::codes;

use crate::support::{json, problem};

#[tokio::test]
async fn a_problem_has_details_fields_and_retry_after() {
    let response = Problem::new(&codes::INVALID_BODY, "Two fields are wrong.")
        .field("/a", "too small")
        .field("/b/0", "unknown field")
        .with("limit", 3)
        .retry_after(Duration::from_millis(1500))
        .into_response();
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(
        json(response).await,
        serde_json::json!({
            "type": "/errors/invalid-body",
            "title": "The body does not have the expected shape",
            "status": 422,
            "detail": "Two fields are wrong.",
            "code": "invalid-body",
            "errors": [
                {"field": "/a", "reason": "too small"},
                {"field": "/b/0", "reason": "unknown field"},
            ],
            "limit": 3,
        })
    );
}

#[tokio::test]
async fn the_cause_of_an_internal_error_is_kept_and_not_returned() {
    let fault = Problem::internal("password=hunter2 refused by 10.0.0.1");
    let source = std::error::Error::source(&fault).unwrap();
    assert_eq!(source.to_string(), "password=hunter2 refused by 10.0.0.1");
    let details = problem(fault.into_response()).await;
    assert_eq!(
        (details.status, details.code.as_str()),
        (500, "internal-error")
    );
    assert!(!serde_json::to_string(&details).unwrap().contains("hunter2"));
}

#[test]
fn clients_can_deserialize_a_problem() {
    let problem = Problem::new(&codes::FORBIDDEN, "no").with("required_scope", "read");
    let text = serde_json::to_string(problem.details()).unwrap();
    let read: postrider_web::ProblemDetails = serde_json::from_str(&text).unwrap();
    assert_eq!(&read, problem.details());
}
