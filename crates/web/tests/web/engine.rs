use std::time::Duration;

use axum::response::IntoResponse;
use postrider::Error;
use postrider::digest::Digest;
use postrider::ledger::LedgerError;
use postrider_web::Problem;

use crate::support::{problem, problem_summary};

#[tokio::test]
async fn an_invalid_value_is_a_client_error() {
    let error = Error::invalid("key", "it must have at most 200 characters");
    let details = problem(Problem::from(error).into_response()).await;
    assert_eq!(
        (details.status, details.code.as_str()),
        (422, "invalid-value")
    );
    assert_eq!(details.errors[0].field, "key");
    assert!(details.detail.contains("200 characters"));
}

#[tokio::test]
async fn transient_errors_are_retryable() {
    let busy = LedgerError::Busy {
        retry_after: Duration::from_secs(3),
    };
    for (error, code, wait) in [
        (Problem::from(busy), "request-in-progress", "3"),
        (
            Problem::from(Error::Stopped("the outbox")),
            "shutting-down",
            "5",
        ),
        (
            Problem::from(LedgerError::from(sqlx::Error::PoolTimedOut)),
            "database-busy",
            "1",
        ),
    ] {
        let response = error.into_response();
        assert_eq!(response.headers()["retry-after"], wait);
        assert_eq!(problem(response).await.code, code);
    }
}

#[tokio::test]
async fn unreadable_rows_are_internal_errors() {
    let error = Error::Unreadable {
        what: "postrider.outbox",
        problem: "state 'x'".to_owned(),
    };
    let details = problem(Problem::from(error).into_response()).await;
    assert_eq!(details.code, "internal-error");
    assert!(!details.detail.contains("outbox"));
}

#[tokio::test]
async fn a_request_without_a_canonical_form_names_the_field() {
    let error = Digest::of_json(r#"{"a":[9007199254740993]}"#).unwrap_err();
    let details = problem_summary(Problem::from(error).into_response()).await;
    let expected = (422, "inexact-number".to_owned(), Some("/a/0".to_owned()));
    assert_eq!(details, expected);
}
