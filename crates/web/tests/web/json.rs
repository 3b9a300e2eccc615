use axum::Router;
use axum::routing::post;
use postrider_web::{Json, MiddlewareOptions, with_middleware};
use serde::{Deserialize, Serialize};

use crate::support::{
    call, default_middleware, json, post_json, problem, problem_summary, request, set,
};

#[derive(Deserialize, Serialize)]
struct Line {
    sku: String,
    quantity: u32,
}

#[derive(Deserialize, Serialize)]
struct Order {
    id: i64,
    note: Option<String>,
    lines: Vec<Line>,
}

fn orders() -> Router {
    default_middleware(
        Router::new()
            .route(
                "/orders",
                post(|Json(order): Json<Order>| async { Json(order) }),
            )
            .route(
                "/any",
                post(|Json(any): Json<serde_json::Value>| async { Json(any) }),
            ),
    )
}

async fn rejection(path: &str, body: impl Into<axum::body::Body>) -> (u16, String, Option<String>) {
    problem_summary(call(&orders(), post_json(path, body)).await).await
}

fn expected(status: u16, code: &str, field: Option<&str>) -> (u16, String, Option<String>) {
    (status, code.to_owned(), field.map(str::to_owned))
}

#[tokio::test]
async fn a_valid_body_arrives_unchanged() {
    let text = r#"{"id": 9007199254740993, "lines": [{"sku": "a", "quantity": 2}]}"#;
    let response = call(&orders(), post_json("/orders", text)).await;
    assert_eq!(response.status(), 200);
    let answer = json(response).await;
    assert_eq!(answer["id"], 9_007_199_254_740_993_i64);
    assert_eq!(answer["lines"][0]["quantity"], 2);
}

#[tokio::test]
async fn only_json_content_types_are_accepted() {
    for (content_type, status) in [
        (Some("application/json"), 200),
        (Some("Application/JSON; charset=UTF-8"), 200),
        (Some("application/merge-patch+json"), 200),
        (Some("application/json; charset=latin1"), 415),
        (Some("text/plain"), 415),
        (Some("text/json+json"), 415),
        (None, 415),
    ] {
        let mut request = request(http::Method::POST, "/any", "{}");
        if let Some(content_type) = content_type {
            set(&mut request, "content-type", content_type);
        }
        let response = call(&orders(), request).await;
        assert_eq!(response.status(), status, "{content_type:?}");
        if status == 415 {
            assert_eq!(problem(response).await.code, "unsupported-media-type");
        }
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_rejected_with_the_limit() {
    let options = MiddlewareOptions {
        body_limit: 100,
        ..MiddlewareOptions::default()
    };
    let any = post(|Json(any): Json<serde_json::Value>| async { Json(any) });
    let wide = any.clone().layer(postrider_web::body_limit(1000));
    let router = Router::new().route("/any", any).route("/wide", wide);
    let router = with_middleware(router, options);
    let text = format!("\"{}\"", "x".repeat(200));

    let details = problem(call(&router, post_json("/any", text.clone())).await).await;
    assert_eq!(
        (details.status, details.code.as_str()),
        (413, "body-too-large")
    );
    assert_eq!(details.more["limit"], 100);
    assert!(details.detail.contains("100 bytes"));

    let chunks =
        ["\"", &"x".repeat(200), "\""].map(|part| Ok::<_, std::io::Error>(part.to_owned()));
    let unannounced = axum::body::Body::from_stream(futures_util::stream::iter(chunks));
    let details = problem(call(&router, post_json("/any", unannounced)).await).await;
    assert_eq!(details.code, "body-too-large");

    let own = call(&router, post_json("/wide", text)).await;
    assert_eq!(own.status(), 200, "the route's own limit holds");
}

#[tokio::test]
async fn a_truncated_body_has_its_own_code() {
    let parts = [Ok("{\"a\":"), Err(std::io::Error::other("reset by peer"))];
    let body = axum::body::Body::from_stream(futures_util::stream::iter(parts));
    assert_eq!(
        rejection("/any", body).await,
        expected(400, "incomplete-body", None)
    );
}

#[tokio::test]
async fn invalid_json_is_rejected_with_its_position() {
    let details = problem(call(&orders(), post_json("/any", "{\n  \"ä\": 1,\n}")).await).await;
    assert_eq!(
        (details.status, details.code.as_str()),
        (400, "invalid-json")
    );
    assert_eq!(
        (&details.more["line"], &details.more["column"]),
        (&3.into(), &1.into())
    );
    assert!(
        details.detail.contains("line 3, column 1"),
        "{}",
        details.detail
    );

    for text in [
        "",
        " ",
        "{",
        "[1,]",
        "01",
        "+1",
        ".5",
        "1.",
        "nul",
        "{a:1}",
        "'a'",
        "[1]]",
        "\"\t\"",
        "\"\\x\"",
        "\"\\u12\"",
        "NaN",
        "-",
    ] {
        assert_eq!(
            rejection("/any", text).await,
            expected(400, "invalid-json", None),
            "{text:?}"
        );
    }
    let not_utf8 = vec![b'"', 0xff, b'"'];
    assert_eq!(
        rejection("/any", not_utf8).await,
        expected(400, "invalid-json", None)
    );
}

#[tokio::test]
async fn a_duplicate_key_is_rejected_at_every_depth() {
    let duplicate = |field| expected(422, "duplicate-key", Some(field));
    assert_eq!(rejection("/any", r#"{"a":1,"a":1}"#).await, duplicate("/a"));
    assert_eq!(
        rejection("/any", r#"{"a":1,"\u0061":1}"#).await,
        duplicate("/a")
    );
    assert_eq!(
        rejection("/any", r#"[{"a/b":{"c~d":1,"x":[],"c~d":2}}]"#).await,
        duplicate("/0/a~1b/c~0d")
    );
    let apart = call(&orders(), post_json("/any", r#"[{"a":1},{"a":{"a":2}}]"#)).await;
    assert_eq!(apart.status(), 200);
}

#[tokio::test]
async fn deep_nesting_is_rejected_with_the_limit() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(
        call(&orders(), post_json("/any", nested(64)))
            .await
            .status(),
        200
    );
    let details = problem(call(&orders(), post_json("/any", nested(65))).await).await;
    assert_eq!(
        (details.status, details.code.as_str()),
        (422, "json-too-deep")
    );
    assert_eq!(details.more["limit"], 64);
    let endless = rejection("/any", "{\"a\":".repeat(150_000)).await;
    assert_eq!(endless.1, "json-too-deep");
}

#[tokio::test]
async fn text_that_postgresql_cannot_store_is_rejected_with_its_position() {
    for (text, code, field) in [
        (r#"{"a":["x\u0000y"]}"#, "nul-character", "/a/0"),
        (r#"{"a":{"\u0000":1}}"#, "nul-character", "/a"),
        (r#"{"a":"\ud83d"}"#, "lone-surrogate", "/a"),
        (r#"{"a":"\ud83dx"}"#, "lone-surrogate", "/a"),
        (r#"{"a":"\ud83d\ud83d"}"#, "lone-surrogate", "/a"),
        (r#"{"a":"\ude00"}"#, "lone-surrogate", "/a"),
        (r#"{"\ude00":1}"#, "lone-surrogate", ""),
    ] {
        assert_eq!(
            rejection("/any", text).await,
            expected(422, code, Some(field)),
            "{text}"
        );
    }
    let pair = call(&orders(), post_json("/any", r#""\ud83d\ude00 \\u0000""#)).await;
    assert_eq!(json(pair).await, "😀 \\u0000");
}

#[tokio::test]
async fn a_number_that_would_lose_precision_is_rejected() {
    let details = rejection("/any", r#"{"price":[1.5,0.12345678901234567891]}"#).await;
    assert_eq!(details, expected(422, "inexact-number", Some("/price/1")));
    assert_eq!(rejection("/any", "1e999").await.1, "inexact-number");
    let text = "[18446744073709551615,-9223372036854775808,0.1,1234567.8912345679,5e-324]";
    let kept = call(&orders(), post_json("/any", text)).await;
    let kept = String::from_utf8(crate::support::bytes(kept).await).unwrap();
    assert_eq!(kept, text);
}

#[tokio::test]
async fn a_body_that_does_not_match_the_schema_is_rejected_by_field() {
    let invalid = |field| expected(422, "invalid-body", Some(field));
    for (text, field) in [
        (
            r#"{"id":1,"lines":[{"sku":"a","quantity":"2"}]}"#,
            "/lines/0/quantity",
        ),
        (
            r#"{"id":1,"lines":[{"sku":"a","quantity":-2}]}"#,
            "/lines/0/quantity",
        ),
        (r#"{"id":1,"lines":[{"sku":"a"}]}"#, "/lines/0"),
        (r#"{"lines":[]}"#, ""),
        (r#"[]"#, ""),
        (r#"{"id":1,"lines":[],"x/y":0}"#, "/x~1y"),
    ] {
        let details = rejection("/orders", text).await;
        assert_eq!(details, invalid(field), "{text}");
    }
}

#[tokio::test]
async fn an_array_is_rejected_where_an_object_is_expected() {
    for (body, place) in [
        (r#"[1, null, []]"#, ""),
        (r#"{"id": 1, "lines": [["a", 2]]}"#, "/lines/0"),
    ] {
        assert_eq!(
            rejection("/orders", body).await,
            expected(422, "invalid-body", Some(place)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn all_unknown_fields_are_listed() {
    let text = r#"{"id":1,"idd":2,"lines":[{"sku":"a","quantity":1,"colour":"red"}]}"#;
    let details = problem(call(&orders(), post_json("/orders", text)).await).await;
    let fields: Vec<&str> = details.errors.iter().map(|e| e.field.as_str()).collect();
    assert_eq!(fields, ["/idd", "/lines/0/colour"]);
}

#[tokio::test]
async fn a_response_never_repeats_a_huge_input() {
    let key = "k".repeat(500_000);
    let body = format!("{{\"{key}\":1,\"{key}\":2}}");
    let details = problem(call(&orders(), post_json("/any", body)).await).await;
    assert!(details.detail.len() < 600 && details.errors[0].field.len() < 300);
    let body = format!("{{\"id\":\"{key}\"}}");
    let details = problem(call(&orders(), post_json("/orders", body)).await).await;
    assert!(details.detail.len() < 1000 && details.errors[0].reason.len() < 400);
}
