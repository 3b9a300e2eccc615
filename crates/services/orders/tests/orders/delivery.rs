//! Delivery: an accepted order reaches the broker once, or is visibly aborted.

use axum::http::StatusCode;
use postrider::dead_letter::{DeadLetters, Filter};
use postrider_orders::OUTBOX_ORDERS;
use serde_json::json;

use crate::support::{
    Fixture, eventually, http_broker, order, order_for_symbol, over_http, paper, settings,
};

#[tokio::test]
async fn a_sent_order_shows_the_response_of_the_broker() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([]));
    fixture.start_workers(&settings(json!({})), over_http(&broker).await);
    fixture.post(order("k-1")).await;
    let view = fixture.wait_for_status("k-1", "succeeded").await;
    assert_eq!(view["status"], "succeeded");
    assert_eq!(
        view["result"],
        json!({ "broker_order_id": "paper-1", "status": "ok" })
    );
    let booked = &broker.orders()["k-1"];
    assert_eq!(booked.request["client_order_id"], "k-1");
    assert_eq!(booked.request["quantity"], "10");
    assert_eq!(booked.request["limit_price"], "12.5");
    assert!(booked.request.get("idempotency_key").is_none());
    let (status, replay) = fixture.post(order("k-1")).await;
    assert_eq!((status, replay), (StatusCode::OK, view));
}

#[tokio::test]
async fn after_an_uncertain_attempt_the_broker_is_queried_before_a_retry() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([
        { "symbol": "HANGS", "do": "hang_up" },
        { "symbol": "BREAKS", "do": { "fail_after": { "status": 500 } } },
        { "symbol": "SLEEPS", "times": 1, "do": { "slow": { "for": "2s" } } },
    ]));
    fixture.start_workers(&settings(json!({})), over_http(&broker).await);
    for symbol in ["HANGS", "BREAKS"] {
        fixture.post(order_for_symbol(symbol, symbol)).await;
        let view = fixture.wait_for_status(symbol, "succeeded").await;
        assert_eq!(view["outbox"]["attempts"], 1, "{view}");
        assert_eq!(broker.orders()[symbol].posts, 1, "{symbol} was sent once");
    }
    fixture.post(order_for_symbol("SLEEPS", "SLEEPS")).await;
    let view = fixture.wait_for_status("SLEEPS", "succeeded").await;
    assert!(view["outbox"]["attempts"].as_i64() >= Some(1), "{view}");
}

#[tokio::test]
async fn an_order_unknown_to_the_broker_is_sent_again_under_the_same_id() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "fail": { "status": 503 } } }]));
    fixture.start_workers(&settings(json!({})), over_http(&broker).await);
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "succeeded").await;
    assert_eq!(broker.orders()["k-1"].posts, 1);
}

#[tokio::test]
async fn an_order_for_an_unavailable_broker_ends_as_a_dead_letter() {
    let fixture = Fixture::new().await;
    // Nothing listens on this port: it was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    fixture.start_workers(
        &settings(json!({ "max_attempts": 3 })),
        http_broker(&format!("http://{free}")),
    );
    fixture.post(order("k-1")).await;
    let view = fixture.wait_for_status("k-1", "aborted").await;
    assert_eq!(view["status"], "failed");
    assert_eq!(view["outbox"]["attempts"], 3);
    assert_eq!(view["result"]["reason_code"], "NETWORK_ERROR");
    let letters = DeadLetters::new([&OUTBOX_ORDERS]).unwrap();
    let found = letters
        .list(&fixture.pool, &Filter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].code.as_str(), found[0].attempts),
        ("NETWORK_ERROR", 3)
    );
}

#[tokio::test]
async fn retry_after_of_the_broker_delays_the_retry() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "do": { "fail": { "status": 429, "retry_after": 1800 } } }]));
    fixture.start_workers(&settings(json!({})), over_http(&broker).await);
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "failed").await;
    let far: bool =
        sqlx::query_scalar("select due > now() + interval '25 minutes' from orders.outbox_orders")
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
    assert!(far, "due when the broker asked for it");
}

#[tokio::test]
async fn an_open_breaker_costs_no_attempt() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 3, "do": { "fail": { "status": 503 } } }]));
    let breaker = json!({ "breaker": { "threshold": 1, "open_for": 0.2 }, "concurrency": 1 });
    fixture.start_workers(&settings(breaker), over_http(&broker).await);
    for n in 0..3 {
        fixture.post(order(&format!("k-{n}"))).await;
    }
    eventually("all are sent", async || {
        let left: i64 = sqlx::query_scalar(
            "select count(*) from orders.outbox_orders where finished_at is null",
        )
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
        left == 0
    })
    .await;
    let spent: i64 = sqlx::query_scalar(
        "select sum(attempts) from orders.outbox_orders where status = 'succeeded'",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(
        spent, 3,
        "one for each refusal of the broker, none for the waits"
    );
}

#[tokio::test]
async fn refused_credentials_abort_no_order() {
    for status in ["401", "403", "407"] {
        let fixture = Fixture::new().await;
        let broker = paper(
            json!([{ "times": 9, "do": { "fail": { "status": status.parse::<u16>().unwrap() } } }]),
        );
        let quick = settings(json!({ "max_attempts": 1, "concurrency": 1 }));
        fixture.start_workers(&quick, over_http(&broker).await);
        fixture.post(order("k-1")).await;
        let view = eventually("it shows why it waits", async || {
            let view = fixture.get("k-1").await;
            if view["outbox"]["last_error_code"] == status {
                Ok(view)
            } else {
                Err(view)
            }
        })
        .await;
        assert_eq!(view["status"], "accepted");
        let view = fixture.wait_for_status("k-1", "succeeded").await;
        assert_eq!(view["outbox"]["attempts"], 0, "{view}");
        assert_eq!(broker.orders()["k-1"].posts, 1);
    }
}

#[tokio::test]
async fn refused_credentials_open_the_breaker() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "do": { "fail": { "status": 401 } } }]));
    let breaker = json!({ "breaker": { "threshold": 2, "open_for": 3600 }, "concurrency": 1 });
    fixture.start_workers(&settings(breaker), over_http(&broker).await);
    for n in 0..5 {
        fixture.post(order(&format!("k-{n}"))).await;
    }
    eventually("the breaker is open", async || {
        let waiting: i64 = sqlx::query_scalar(
            "select count(*) from orders.outbox_orders where due > now() + interval '30 minutes' and attempts = 0",
        )
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
        waiting == 5
    })
    .await;
}

#[tokio::test]
async fn a_client_error_without_a_reason_code_is_not_a_rejection() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 2, "do": { "fail": { "status": 404 } } }]));
    fixture.start_workers(&settings(json!({})), over_http(&broker).await);
    fixture.post(order("k-1")).await;
    let view = fixture.wait_for_status("k-1", "succeeded").await;
    assert_eq!(view["outbox"]["attempts"], 2, "{view}");
    assert_eq!(broker.orders()["k-1"].posts, 1);
}
