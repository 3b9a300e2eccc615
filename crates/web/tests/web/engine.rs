use std::time::Duration;

use axum::response::IntoResponse;
use postrider::Error;
use postrider::digest::Digest;
use postrider::ledger::LedgerError;
use postrider_web::Problem;

use crate::support::{problem, refusal};

#[tokio::test]
async fn a_value_that_the_engine_refuses_is_the_callers_to_correct() {
    let error = Error::invalid("key", "it must have at most 200 characters");
    let told = problem(Problem::from(error).into_response()).await;
    assert_eq!((told.status, told.code.as_str()), (422, "invalid-value"));
    assert_eq!(told.errors[0].field, "key");
    assert!(told.detail.contains("200 characters"));
}

#[tokio::test]
async fn what_time_will_mend_asks_to_try_again() {
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
async fn unreadable_rows_are_no_fault_of_the_client() {
    let error = Error::Unreadable {
        what: "postrider.outbox",
        problem: "state 'x'".to_owned(),
    };
    let told = problem(Problem::from(error).into_response()).await;
    assert_eq!(told.code, "internal-error");
    assert!(!told.detail.contains("outbox"));
}

#[tokio::test]
async fn a_request_without_a_digest_names_the_place() {
    let error = Digest::of_json(r#"{"a":[9007199254740993]}"#).unwrap_err();
    let told = refusal(Problem::from(error).into_response()).await;
    let expected = (422, "inexact-number".to_owned(), Some("/a/0".to_owned()));
    assert_eq!(told, expected);
}
