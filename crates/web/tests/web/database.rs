use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use axum::response::IntoResponse;
use postrider_web::Problem;
use sqlx::error::{DatabaseError, ErrorKind};

use crate::support;

/// An error as the database server would send it, with any SQLSTATE.
#[derive(Debug)]
struct Answer(&'static str);

const SECRET: &str = "syntax error in SELECT secret FROM vault";

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SECRET)
    }
}

impl StdError for Answer {}

impl DatabaseError for Answer {
    fn message(&self) -> &str {
        SECRET
    }
    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.0.into())
    }
    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self
    }
    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self
    }
    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self
    }
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

async fn details(error: sqlx::Error) -> (u16, String, bool) {
    let response = Problem::from(error).into_response();
    let retry = response.headers().contains_key("retry-after");
    let text = String::from_utf8(support::bytes(response).await).unwrap();
    assert!(
        !text.contains("secret") && !text.contains("SELECT"),
        "{text}"
    );
    let problem: serde_json::Value = serde_json::from_str(&text).unwrap();
    let status = u16::try_from(problem["status"].as_u64().unwrap()).unwrap();
    (status, problem["code"].as_str().unwrap().to_owned(), retry)
}

#[tokio::test]
async fn an_exhausted_pool_and_lost_races_are_retryable() {
    let busy = (503, "database-busy".to_owned(), true);
    assert_eq!(details(sqlx::Error::PoolTimedOut).await, busy);
    for state in ["40001", "40P01", "55P03", "57014"] {
        assert_eq!(
            details(sqlx::Error::Database(Box::new(Answer(state)))).await,
            busy,
            "{state}"
        );
    }
}

#[tokio::test]
async fn connection_errors_are_retryable() {
    let gone = (503, "database-unavailable".to_owned(), true);
    let broken = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "secret host");
    assert_eq!(details(sqlx::Error::Io(broken)).await, gone);
    assert_eq!(details(sqlx::Error::PoolClosed).await, gone);
    for state in ["08006", "57P01", "57P03", "25006"] {
        assert_eq!(
            details(sqlx::Error::Database(Box::new(Answer(state)))).await,
            gone,
            "{state}"
        );
    }
}

#[tokio::test]
async fn exhausted_database_resources_are_named() {
    for (state, what) in [
        ("53100", "disk space"),
        ("53200", "memory"),
        ("53300", "connections"),
        ("53000", "resources"),
    ] {
        let error = || sqlx::Error::Database(Box::new(Answer(state)));
        let exhausted = (503, "database-exhausted".to_owned(), true);
        assert_eq!(details(error()).await, exhausted, "{state}");
        let detail = Problem::from(error()).details().detail.clone();
        assert!(
            detail.contains(&format!("has run out of {what}")),
            "{state}: {detail}"
        );
    }
}

#[tokio::test]
async fn other_database_errors_are_internal_errors_without_details() {
    let fault = (500, "internal-error".to_owned(), false);
    assert_eq!(
        details(sqlx::Error::Database(Box::new(Answer("42601")))).await,
        fault
    );
    assert_eq!(details(sqlx::Error::RowNotFound).await, fault);
}
