use axum::Router;
use axum::routing::get as route_get;
use postrider_web::{Limit, Path, Query};
use serde::Deserialize;
use uuid::Uuid;

use crate::support::{bytes, call, default_middleware, get, problem, problem_summary};

#[derive(Deserialize)]
struct Filter {
    state: Option<String>,
    #[serde(default)]
    limit: Limit,
}

fn router() -> Router {
    let list = |Query(filter): Query<Filter>| async move {
        format!("{:?} {}", filter.state, filter.limit.rows())
    };
    let one = |Path(id): Path<Uuid>| async move { id.to_string() };
    let two = |Path((kind, number)): Path<(String, u32)>| async move { format!("{kind} {number}") };
    default_middleware(
        Router::new()
            .route("/jobs", route_get(list))
            .route("/jobs/{id}", route_get(one))
            .route("/things/{kind}/{number}", route_get(two)),
    )
}

#[tokio::test]
async fn known_parameters_are_parsed() {
    for (path, expected) in [
        ("/jobs", "None 50"),
        ("/jobs?", "None 50"),
        ("/jobs?state=dead+letter&limit=7", "Some(\"dead letter\") 7"),
        ("/jobs?state=%C3%A4", "Some(\"ä\") 50"),
        ("/things/a%20b/3", "a b 3"),
    ] {
        let response = call(&router(), get(path)).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(bytes(response).await, expected.as_bytes(), "{path}");
    }
}

#[tokio::test]
async fn an_invalid_query_is_rejected_by_parameter() {
    for (query, field) in [
        ("stat=dead", "stat"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=many", "limit"),
        ("limit=-1", "limit"),
        ("state=%00", "state"),
        ("state=a%00b", "state"),
        ("state=%ff", "state"),
        ("state=%zz", "state"),
        ("state=%e", "state"),
    ] {
        let details = problem_summary(call(&router(), get(&format!("/jobs?{query}"))).await).await;
        assert_eq!(
            details,
            (400, "invalid-query".to_owned(), Some(field.to_owned())),
            "{query}"
        );
    }
    let twice = problem(call(&router(), get("/jobs?state=a&state=b")).await).await;
    assert_eq!(twice.code, "invalid-query");
    assert!(twice.detail.contains("state"), "{}", twice.detail);
    let several = problem(call(&router(), get("/jobs?a=1&b=2")).await).await;
    assert_eq!(several.errors.len(), 2);
}

#[tokio::test]
async fn an_invalid_path_value_is_rejected() {
    for path in [
        "/jobs/17",
        "/jobs/%00",
        "/jobs/%ff",
        "/things/a/x",
        "/things/a%00/1",
        "/things/a/-1",
    ] {
        let details = problem(call(&router(), get(path)).await).await;
        assert_eq!(
            (details.status, details.code.as_str()),
            (400, "invalid-path"),
            "{path}"
        );
    }
}
