//! Cancel and redrive.

use axum::http::{Method, StatusCode};
use postrider_engine::lease::{Operator, Queue};
use postrider_orders::OUTBOX_ORDERS;
use serde_json::json;

use crate::support::{House, behind_http, eventually, order, paper, settings};

async fn cancel(house: &House, key: &str) -> (StatusCode, serde_json::Value) {
    house
        .call(Method::POST, &format!("/do/order/{key}/cancel"), None)
        .await
}

async fn redrive(house: &House, key: &str, allow_stale: bool) -> (StatusCode, serde_json::Value) {
    let body = json!({ "allow_stale": allow_stale, "reason": "a test" });
    house
        .call(
            Method::POST,
            &format!("/do/order/{key}/redrive"),
            Some(body),
        )
        .await
}

#[tokio::test]
async fn a_pending_order_is_cancelled_and_never_sent() {
    let house = House::new().await;
    house.post(order("k-1")).await;
    let (status, view) = cancel(&house, "k-1").await;
    assert_eq!(status, StatusCode::OK, "{view}");
    assert_eq!(
        (&view["status"], &view["outbox"]["last_error_code"]),
        (&json!("failed"), &json!("CANCELLED"))
    );
    let broker = paper(json!([]));
    house.work(&settings(json!({})), broker.clone());
    house.post(order("k-2")).await;
    house.stands("k-2", "succeeded").await;
    assert!(!broker.booked().contains_key("k-1"));
    let (status, problem) = cancel(&house, "k-1").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-cancellable"))
    );
    assert_eq!(cancel(&house, "unknown").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_order_that_may_have_reached_the_broker_is_not_cancelled() {
    let house = House::new().await;
    let broker = paper(json!([{ "do": { "fail_after": { "status": 500 } } }]));
    house.work(
        &settings(json!({ "backoff": [3600] })),
        behind_http(&broker).await,
    );
    house.post(order("k-1")).await;
    house.stands("k-1", "failed").await;
    let (status, problem) = cancel(&house, "k-1").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-cancellable"))
    );
}

#[tokio::test]
async fn an_order_that_the_broker_certainly_has_not_got_can_be_cancelled() {
    let house = House::new().await;
    let broker = paper(json!([{ "do": { "fail": { "status": 429 } } }]));
    house.work(
        &settings(json!({ "backoff": [3600] })),
        behind_http(&broker).await,
    );
    house.post(order("k-1")).await;
    house.stands("k-1", "failed").await;
    assert_eq!(cancel(&house, "k-1").await.0, StatusCode::OK);
}

#[tokio::test]
async fn an_aborted_order_is_redriven_only_when_told_that_it_may_be_stale() {
    let house = House::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    house.work(&settings(json!({})), broker.clone());
    house.post(order("k-1")).await;
    house.stands("k-1", "aborted").await;
    let (status, problem) = redrive(&house, "k-1", false).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("redrive-not-confirmed"))
    );
    assert_eq!(house.get("k-1").await["outbox"]["status"], "aborted");
    assert_eq!(redrive(&house, "k-1", true).await.0, StatusCode::OK);
    let view = house.stands("k-1", "succeeded").await;
    assert_eq!(view["status"], "succeeded");
    let (status, problem) = redrive(&house, "k-1", true).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-redrivable"))
    );
    let audited: i64 = sqlx::query_scalar(
        "select count(*) from postrider.audit where action = 'redrive' and reason = 'a test'",
    )
    .fetch_one(&house.pool)
    .await
    .unwrap();
    assert_eq!(audited, 1);
}

#[tokio::test]
async fn an_expired_order_is_not_redriven() {
    let house = House::new().await;
    house.work(&settings(json!({})), paper(json!([])));
    let mut stale = order("stale");
    stale["expires_at"] = json!("2020-01-01T00:00:00Z");
    house.post(stale).await;
    house.stands("stale", "aborted").await;
    let (status, problem) = redrive(&house, "stale", true).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("order-not-redrivable"))
    );
}

#[tokio::test]
async fn a_redrive_of_the_row_alone_sends_nothing() {
    let house = House::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    house.work(&settings(json!({})), broker.clone());
    house.post(order("k-1")).await;
    house.stands("k-1", "aborted").await;
    let mut tx = house.pool.begin().await.unwrap();
    let queue = Queue::new(&OUTBOX_ORDERS).unwrap();
    queue
        .redrive(&mut tx, &Operator::new("somebody"), &[1])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    eventually("it is aborted again", async || {
        let view = house.get("k-1").await;
        if view["outbox"]["last_error_code"] == "REDRIVE_NOT_CONFIRMED"
            && view["outbox"]["status"] == "aborted"
        {
            Ok(())
        } else {
            Err(view)
        }
    })
    .await;
    assert!(broker.booked().is_empty());
}
