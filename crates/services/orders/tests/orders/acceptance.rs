//! Acceptance: one key is one order.

use axum::http::{Method, StatusCode};
use serde_json::json;

use postrider_orders::{
    Orders,
    model::{Order, OrderRequest},
    service::AcceptOutcome,
    settings::Ordering,
};
use postrider_testkit::Proxy;
use sqlx::postgres::PgPoolOptions;
use std::time::Duration;

use crate::support::{Fixture, order, paper, settings};

#[tokio::test]
async fn an_order_is_accepted_once_and_can_be_replayed() {
    let fixture = Fixture::new().await;
    let (status, first) = fixture.post(order("k-1")).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{first}");
    assert_eq!(first["status"], "accepted");
    assert_eq!(first["result"], json!(null));
    assert_eq!(
        first["outbox"],
        json!({ "status": "pending", "attempts": 0, "last_error_code": null, "last_error_msg": null })
    );
    let (status, again) = fixture.post(order("k-1")).await;
    assert_eq!((status, &again), (StatusCode::OK, &first));
    let mut other = order("k-1");
    other["quantity"] = json!("11");
    let (status, problem) = fixture.post(other).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(problem["code"], "idempotency-mismatch");
    assert_eq!(fixture.get("k-1").await, first);
}

#[tokio::test]
async fn of_64_concurrent_posts_one_is_accepted_and_the_others_are_replays() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    let mut other = order("contested");
    other["side"] = json!("sell");
    let posts = (0..64).map(|n| {
        fixture.post(if n % 2 == 0 {
            order("contested")
        } else {
            other.clone()
        })
    });
    let answers = futures_util::future::join_all(posts).await;
    let count = |status| answers.iter().filter(|(s, _)| *s == status).count();
    assert_eq!(count(StatusCode::ACCEPTED), 1);
    assert_eq!(
        count(StatusCode::OK),
        31,
        "all others with the winner's content"
    );
    assert_eq!(count(StatusCode::CONFLICT), 32, "all with the loser's");
    fixture.wait_for_status("contested", "succeeded").await;
    let rows: i64 = sqlx::query_scalar("select count(*) from orders.outbox_orders")
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    assert_eq!(rows, 1);
    assert_eq!(broker.orders()["contested"].posts, 1);
}

#[tokio::test]
async fn concurrent_orders_share_commits_and_all_are_accepted() {
    let fixture = Fixture::new().await;
    let posts = (0..300).map(|n| fixture.post(order(&format!("k-{n}"))));
    let answers = futures_util::future::join_all(posts).await;
    assert!(
        answers
            .iter()
            .all(|(status, _)| *status == StatusCode::ACCEPTED)
    );
    let (ledger, outbox): (i64, i64) = sqlx::query_as(
        "select (select count(*) from orders.idempo_ledger), (select count(*) from orders.outbox_orders)",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!((ledger, outbox), (300, 300));
}

#[tokio::test]
async fn an_invalid_order_is_rejected_with_the_field_at_fault() {
    let fixture = Fixture::new().await;
    let cases = [
        ("quantity", json!("0"), "/quantity"),
        ("quantity", json!(-1), "/quantity"),
        ("quantity", json!("ten"), "/quantity"),
        ("limit_price", json!(null), "/limit_price"),
        ("type", json!("market"), "/limit_price"),
        ("side", json!("hold"), "/side"),
        ("symbol", json!(""), "/symbol"),
        ("version", json!("2.0"), "/version"),
        ("idempotency_key", json!(""), "/idempotency_key"),
        ("expires_at", json!("tomorrow"), "/expires_at"),
    ];
    for (field, value, place) in cases {
        let mut wrong = order("k");
        wrong[field] = value.clone();
        let (status, problem) = fixture.post(wrong).await;
        assert_eq!(
            status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{field} = {value}: {problem}"
        );
        assert_eq!(problem["errors"][0]["field"], place, "{problem}");
    }
    let mut unknown = order("k");
    unknown["colour"] = json!("red");
    assert_eq!(
        fixture.post(unknown).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    let (status, _) = fixture.call(Method::GET, "/do/order/k", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "nothing was written");
}

#[tokio::test]
async fn decimals_are_read_from_strings_or_numbers_and_never_rounded() {
    let fixture = Fixture::new().await;
    let body = order("exact").to_string();
    let body = body
        .replace("\"10\"", "9007199254740993")
        .replace("\"12.50\"", "0.10000000000000001");
    let (status, _) = fixture.raw(Method::POST, "/do/order", Some(body)).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let stored: (String, String) = sqlx::query_as(
        "select order_request_json ->> 'quantity', order_request_json ->> 'limit_price' from orders.outbox_orders",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(
        stored,
        ("9007199254740993".into(), "0.10000000000000001".into())
    );
}

#[tokio::test]
async fn orders_are_listed_newest_first_in_filtered_pages() {
    let fixture = Fixture::new().await;
    for n in 0..5 {
        fixture.post(order(&format!("k-{n}"))).await;
    }
    let (_, first) = fixture
        .call(
            Method::GET,
            "/do/order?limit=2&status=pending&account=A1",
            None,
        )
        .await;
    let keys = |page: &serde_json::Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items
            .map(|item| item["idempotency_key"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(keys(&first), ["k-4", "k-3"]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let (_, second) = fixture
        .call(
            Method::GET,
            &format!("/do/order?limit=10&status=pending&account=A1&cursor={cursor}"),
            None,
        )
        .await;
    assert_eq!(keys(&second), ["k-2", "k-1", "k-0"]);
    for other in ["", "&status=pending", "&status=aborted&account=A1"] {
        let path = format!("/do/order?limit=10{other}&cursor={cursor}");
        let (status, problem) = fixture.call(Method::GET, &path, None).await;
        assert_eq!(
            (status, &problem["code"]),
            (
                StatusCode::BAD_REQUEST,
                &serde_json::json!("invalid-cursor")
            ),
            "{other}"
        );
    }
    assert!(second.get("next_cursor").is_none());
    let (_, none) = fixture
        .call(Method::GET, "/do/order?symbol=OTHER", None)
        .await;
    assert!(keys(&none).is_empty());
    let (status, _) = fixture
        .call(Method::GET, "/do/order?status=odd", None)
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_silent_connection_fails_one_call_and_not_the_ones_after_it() {
    let fixture = Fixture::new().await;
    let proxy = Proxy::for_database(&fixture.db).await;
    let through = PgPoolOptions::new()
        .acquire_timeout(Duration::from_secs(5))
        .connect_lazy_with(proxy.connect_options());
    let orders = Orders::start(through, Ordering::None);
    let accept = async |key: &str| {
        let request: OrderRequest = serde_json::from_value(order(key)).unwrap();
        let order = Order::try_from(request).unwrap();
        tokio::time::timeout(Duration::from_secs(60), orders.accept(order))
            .await
            .expect("a result within the deadline")
    };
    assert!(matches!(
        accept("k-1").await,
        Ok(AcceptOutcome::Accepted(_))
    ));
    proxy.black_hole();
    assert!(accept("k-1").await.is_err());
    proxy.pass();
    assert!(matches!(accept("k-1").await, Ok(AcceptOutcome::Replay(_))));
}
