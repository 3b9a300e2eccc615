//! Every crash point of orders with every kind of failure: each order is accepted, sent once and recorded.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use postrider_testkit::{TestDb, crash, eventually};
use serde_json::Value;

use crate::orders::{broker, order, serve};
use crate::program::Serving;

const ORDERS: usize = 6;

/// The stall outlasts the lease.
const WAYS: [&str; 4] = ["error", "panic", "kill", "stall:1500ms"];

#[tokio::test]
async fn after_a_failure_at_any_crash_point_each_order_is_sent_and_recorded_once() {
    let points = crash::declared_in(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../services/orders/src"
    ));
    assert!(points.len() >= 4, "{points:?}");
    let (_broker, broker_url) = broker().await;
    let cases: Vec<(String, &str)> = points
        .iter()
        .flat_map(|point| WAYS.map(|way| (point.clone(), way)))
        .collect();
    stream::iter(cases)
        .for_each_concurrent(4, |(point, way)| {
            let broker_url = &broker_url;
            async move { walk(&point, way, broker_url).await }
        })
        .await;
}

async fn walk(point: &str, way: &str, broker_url: &str) {
    let db = TestDb::new().await;
    let mut armed = serve(&db, broker_url);
    // The second time that it comes there: something has been done, and something is left to do.
    armed.env(crash::VARIABLE, format!("{point}={way}@2"));
    let mut serving = Serving::start(&armed).await;
    let key = |n: usize| format!("{point}-{way}-{n}").replace(':', "-");
    let (mut next, mut restarts) = (0, 0);
    while next < ORDERS {
        if serving.has_ended() {
            serving = Serving::start(&serve(&db, broker_url)).await;
            restarts += 1;
        }
        let url = format!("{}/do/order", serving.base());
        let post = reqwest::Client::new().post(url).json(&order(&key(next)));
        match post.send().await {
            Ok(answer) if answer.status().is_success() => next += 1,
            // A client repeats, with the same key.
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let pool = db.pool();
    eventually(
        &format!("{point}, {way}: every order is sent"),
        async || {
            if serving.has_ended() {
                serving = Serving::start(&serve(&db, broker_url)).await;
                restarts += 1;
            }
            let left: i64 = sqlx::query_scalar(
                "select count(*) from orders.idempo_ledger where status <> 'succeeded'",
            )
            .fetch_one(&pool)
            .await
            .unwrap();
            if left == 0 { Ok(()) } else { Err(left) }
        },
    )
    .await;
    assert_eq!(restarts, usize::from(way == "kill"), "{point}, {way}");
    let book: Value = reqwest::get(format!("{broker_url}/orders"))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    for n in 0..ORDERS {
        let booked = &book["orders"][key(n)];
        assert_eq!(booked["posts"], 1, "{point}, {way}: {booked}");
    }
    let disagree: i64 = sqlx::query_scalar(
        "select count(*) from orders.outbox_orders o join orders.idempo_ledger l using (idempotency_key)
         where o.status <> 'succeeded' or l.status <> 'succeeded'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(disagree, 0, "{point}, {way}");
}
