//! Unusual brokers: one that forgets orders, one that asks us to wait, one with a rate limit.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::{Router, http::StatusCode, routing::post};
use futures_util::future::BoxFuture;
use postrider_orders::broker::{Broker, BrokerError};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Fixture, http_broker, order, over_http, paper, settings};

#[tokio::test]
async fn a_forgetful_broker_gets_the_same_client_order_id_again() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 1, "do": "forget" }]));
    let adapter = over_http(&broker).await;
    // The broker accepted the order and denies it, and the response of the first call was lost.
    fixture.post(order("k-1")).await;
    fixture
        .execute("update orders.outbox_orders set sent_at = now()")
        .await;
    adapter
        .send(json!({ "client_order_id": "k-1", "symbol": "ACME" }))
        .await
        .unwrap();
    assert_eq!(adapter.find("k-1").await.unwrap(), None, "it forgot");
    fixture.start_workers(&settings(json!({})), adapter);
    let view = fixture.wait_for_status("k-1", "succeeded").await;
    assert_eq!(view["result"]["broker_order_id"], "paper-1");
    let book = broker.orders();
    assert_eq!(
        (book.len(), book["k-1"].posts),
        (1, 2),
        "the id is stable, so that the broker can tell"
    );
}

/// A broker that answers every order with 429 and this Retry-After header.
async fn overloaded_broker(value: String) -> Arc<dyn Broker> {
    let answer = post(async move || {
        (
            StatusCode::TOO_MANY_REQUESTS,
            [("retry-after", value.clone())],
        )
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().route("/orders", answer);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    http_broker(&format!("http://{address}"))
}

#[tokio::test]
async fn retry_after_is_honoured_as_seconds_and_as_a_date() {
    let in_half_an_hour = SystemTime::now() + Duration::from_secs(1_800);
    let date = time::OffsetDateTime::from(in_half_an_hour)
        .format(&time::macros::format_description!(
            "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
        ))
        .unwrap();
    for value in ["1800".to_owned(), date] {
        let fixture = Fixture::new().await;
        fixture.start_workers(&settings(json!({})), overloaded_broker(value.clone()).await);
        fixture.post(order("k-1")).await;
        fixture.wait_for_status("k-1", "failed").await;
        let waits: bool = sqlx::query_scalar(
            "select due between now() + interval '25 minutes' and now() + interval '31 minutes' from orders.outbox_orders",
        )
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
        assert!(waits, "{value}");
    }
}

/// Records when it is called.
#[derive(Default)]
struct RecordingBroker(Mutex<Vec<Instant>>);

impl Broker for RecordingBroker {
    fn name(&self) -> &'static str {
        "clocked"
    }

    fn send(&self, _: Value) -> BoxFuture<'_, Result<Value, BrokerError>> {
        self.0.lock().unwrap().push(Instant::now());
        Box::pin(async { Ok(json!({ "broker_order_id": "x", "status": "ok" })) })
    }

    fn find<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Value>, BrokerError>> {
        Box::pin(async { Ok(None) })
    }
}

#[tokio::test]
async fn broker_calls_stay_within_the_rate_limit() {
    let fixture = Fixture::new().await;
    let broker = Arc::new(RecordingBroker::default());
    let limited =
        json!({ "broker": { "url": "", "token": "", "timeout": 0.5, "rate": 10, "burst": 2 } });
    for n in 0..8 {
        fixture.post(order(&format!("k-{n}"))).await;
    }
    fixture.start_workers(&settings(limited), broker.clone());
    for n in 0..8 {
        fixture
            .wait_for_status(&format!("k-{n}"), "succeeded")
            .await;
    }
    let times = broker.0.lock().unwrap().clone();
    let elapsed = *times.last().unwrap() - times[0];
    // A burst of two, then one every 100 ms; a call is recorded a moment after it was admitted.
    assert!(elapsed >= Duration::from_millis(550), "{elapsed:?}");
}

#[test]
fn an_invalid_rate_is_reported_with_its_key() {
    let with = |rate: Value, burst: u32| {
        let broker = json!({ "url": "", "token": "", "timeout": 1, "rate": rate, "burst": burst });
        let found = settings(json!({ "broker": broker })).contradictions();
        found.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert!(with(json!(""), 1).is_empty());
    assert!(with(json!(2.5), 1).is_empty());
    assert_eq!(with(json!(0), 1), ["orders.broker.rate"]);
    assert_eq!(with(json!(-1), 1), ["orders.broker.rate"]);
    assert_eq!(with(json!(1), 0), ["orders.broker.burst"]);
}
