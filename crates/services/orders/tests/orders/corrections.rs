//! The ten corrections of the pattern, each by name.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::future::BoxFuture;
use postrider::lease::{Claim, Queue};
use postrider_orders::{
    OUTBOX_ORDERS,
    broker::{Broker, BrokerError},
    cleaning,
};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::support::{Fixture, order, order_for_symbol, paper, settings};

#[tokio::test]
async fn correction_1_orders_of_a_dead_worker_are_rescued() {
    let fixture = Fixture::new().await;
    fixture.post(order("k-1")).await;
    let queue = Queue::new(&OUTBOX_ORDERS).unwrap();
    let claim = Claim::new("doomed", Duration::from_millis(200), 1);
    drop(queue.claim(&fixture.pool, &claim).await.unwrap());
    assert_eq!(fixture.get("k-1").await["outbox"]["status"], "sending");
    let held: (bool, String) =
        sqlx::query_as("select locked_at is not null, locked_by from orders.outbox_orders")
            .fetch_one(&fixture.pool)
            .await
            .unwrap();
    assert_eq!(held, (true, "doomed".to_owned()));
    fixture.start_workers(&settings(json!({})), paper(json!([])));
    fixture.wait_for_status("k-1", "succeeded").await;
}

/// Loses the first response, as if the process had been killed between the broker's acceptance and our commit.
struct LostResponses(Arc<postrider_sim::broker::SimulatedBroker>, AtomicUsize);

impl Broker for LostResponses {
    fn name(&self) -> &'static str {
        "forgetful"
    }

    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, BrokerError>> {
        Box::pin(async move {
            let answer = self.0.send(order).await;
            if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
                panic!("killed after the broker's acceptance");
            }
            answer
        })
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Value>, BrokerError>> {
        self.0.find(id)
    }
}

#[tokio::test]
async fn correction_2_an_order_accepted_before_a_crash_is_not_sent_twice() {
    let fixture = Fixture::new().await;
    let book = paper(json!([]));
    let broker = Arc::new(LostResponses(Arc::clone(&book), AtomicUsize::new(0)));
    fixture.start_workers(&settings(json!({})), broker);
    fixture.post(order("k-1")).await;
    let view = fixture.wait_for_status("k-1", "succeeded").await;
    assert_eq!(view["result"]["broker_order_id"], "paper-1");
    assert_eq!(book.orders()["k-1"].posts, 1);
}

#[tokio::test]
async fn correction_3_a_failed_order_has_a_due_time_and_no_owner_and_is_claimed_again() {
    let fixture = Fixture::new().await;
    let broker =
        paper(json!([{ "times": 1, "do": { "not_ok": { "reason_code": "MARKET_CLOSED" } } }]));
    fixture.start_workers(&settings(json!({ "backoff": [3600] })), broker);
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "failed").await;
    let free: bool = sqlx::query_scalar(
        "select locked_by is null and locked_at is null and due > now() + interval '50 minutes' from orders.outbox_orders",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert!(free);
    fixture
        .execute("update orders.outbox_orders set due = now()")
        .await;
    fixture.wait_for_status("k-1", "succeeded").await;
}

#[tokio::test]
async fn correction_4_one_unique_index_enforces_the_key() {
    let fixture = Fixture::new().await;
    let unique: i64 = sqlx::query_scalar(
        "select count(*) from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
         where i.indrelid = 'orders.outbox_orders'::regclass and i.indisunique and a.attname = 'idempotency_key'",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(unique, 1);
}

#[tokio::test]
async fn correction_5_a_rejection_is_final() {
    let fixture = Fixture::new().await;
    let broker = paper(
        json!([{ "symbol": "NOPE", "do": { "reject": { "reason_code": "UNKNOWN_SYMBOL" } } }]),
    );
    fixture.start_workers(
        &settings(json!({})),
        crate::support::over_http(&broker).await,
    );
    fixture.post(order_for_symbol("k-1", "NOPE")).await;
    let view = fixture.wait_for_status("k-1", "aborted").await;
    assert_eq!(view["outbox"]["attempts"], 1);
    assert_eq!(view["outbox"]["last_error_code"], "UNKNOWN_SYMBOL");
    assert_eq!(
        (&view["status"], &view["result"]["reason_code"]),
        (&json!("failed"), &json!("UNKNOWN_SYMBOL"))
    );
}

#[tokio::test]
async fn correction_6_an_expired_order_is_never_sent() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    let mut stale = order("stale");
    stale["expires_at"] = json!("2020-01-01T00:00:00Z");
    assert_eq!(fixture.post(stale).await.0, StatusCode::ACCEPTED);
    let view = fixture.wait_for_status("stale", "aborted").await;
    assert_eq!(view["outbox"]["last_error_code"], "EXPIRED");
    assert_eq!(view["result"]["reason_code"], "EXPIRED");
    assert!(broker.orders().is_empty());
}

#[tokio::test]
async fn correction_6_an_order_that_expires_while_it_waits_is_not_sent_late() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([{ "times": 1, "do": { "not_ok": { "reason_code": "LATER" } } }]));
    fixture.start_workers(&settings(json!({ "backoff": [3600] })), broker.clone());
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "failed").await;
    fixture
        .execute(
            "update orders.outbox_orders set expires_at = now() - interval '1 second', due = now()",
        )
        .await;
    let view = fixture.wait_for_status("k-1", "aborted").await;
    assert_eq!(view["outbox"]["last_error_code"], "EXPIRED");
    assert!(broker.orders().is_empty());
}

#[tokio::test]
async fn correction_6_finished_rows_are_cleaned_up_after_expiry_or_retention() {
    let fixture = Fixture::new().await;
    fixture.start_workers(&settings(json!({})), paper(json!([])));
    for key in ["expired", "old", "young"] {
        fixture.post(order(key)).await;
        fixture.wait_for_status(key, "succeeded").await;
    }
    fixture.execute("update orders.outbox_orders set expires_at = now() - interval '1 day' where idempotency_key = 'expired'").await;
    fixture.execute("update orders.outbox_orders set finished_at = now() - interval '31 days' where idempotency_key = 'old'").await;
    let month = Duration::from_secs(30 * 86_400);
    cleaning::clean_once(fixture.pool.clone(), month)
        .await
        .unwrap();
    let left: Vec<String> = sqlx::query_scalar("select idempotency_key from orders.outbox_orders")
        .fetch_all(&fixture.pool)
        .await
        .unwrap();
    assert_eq!(left, ["young"]);
}

#[tokio::test]
async fn correction_6_an_aborted_order_stays_a_dead_letter_until_its_retention_is_over() {
    let fixture = Fixture::new().await;
    fixture.start_workers(&settings(json!({})), paper(json!([])));
    let mut stale = order("stale");
    stale["expires_at"] = json!("2020-01-01T00:00:00Z");
    fixture.post(stale).await;
    fixture.wait_for_status("stale", "aborted").await;
    let month = Duration::from_secs(30 * 86_400);
    let clean = async || {
        cleaning::clean_once(fixture.pool.clone(), month)
            .await
            .unwrap();
    };
    clean().await;
    assert_eq!(fixture.get("stale").await["outbox"]["status"], "aborted");
    fixture
        .execute("update orders.outbox_orders set finished_at = now() - interval '31 days'")
        .await;
    clean().await;
    let view = fixture.get("stale").await;
    assert_eq!(
        (&view["outbox"], &view["status"]),
        (&json!(null), &json!("failed"))
    );
}

#[tokio::test]
async fn correction_6_a_success_whose_status_is_not_ok_is_a_failure_with_its_reason() {
    let fixture = Fixture::new().await;
    let broker =
        paper(json!([{ "times": 1, "do": { "not_ok": { "reason_code": "MARKET_CLOSED" } } }]));
    fixture.start_workers(
        &settings(json!({ "max_attempts": 1 })),
        crate::support::over_http(&broker).await,
    );
    fixture.post(order("k-1")).await;
    let view = fixture.wait_for_status("k-1", "aborted").await;
    assert_eq!(view["outbox"]["last_error_code"], "MARKET_CLOSED");
}

#[tokio::test]
async fn correction_7_every_statement_of_the_lifecycle_is_valid_sql() {
    let fixture = Fixture::new().await;
    let queue = Queue::new(&OUTBOX_ORDERS).unwrap();
    let mut connection = fixture.pool.acquire().await.unwrap();
    for (name, text) in queue.statements() {
        use sqlx::{Executor, SqlSafeStr};
        let prepared = connection
            .prepare(sqlx::AssertSqlSafe(text).into_sql_str())
            .await;
        assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
    }
}

/// Answers only once four calls are in flight.
struct BarrierBroker(Barrier);

impl Broker for BarrierBroker {
    fn name(&self) -> &'static str {
        "four"
    }

    fn send(&self, _: Value) -> BoxFuture<'_, Result<Value, BrokerError>> {
        Box::pin(async move {
            self.0.wait().await;
            Ok(json!({ "broker_order_id": "x", "status": "ok" }))
        })
    }

    fn find<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Value>, BrokerError>> {
        Box::pin(async { Ok(None) })
    }
}

#[tokio::test]
async fn correction_8_four_orders_are_sent_concurrently() {
    let fixture = Fixture::new().await;
    for n in 0..8 {
        fixture.post(order(&format!("k-{n}"))).await;
    }
    fixture.start_workers(
        &settings(json!({ "concurrency": 4 })),
        Arc::new(BarrierBroker(Barrier::new(4))),
    );
    for n in 0..8 {
        fixture
            .wait_for_status(&format!("k-{n}"), "succeeded")
            .await;
    }
}

#[test]
fn correction_9_the_last_backoff_delay_repeats() {
    let delays = |backoff: Value| {
        let policy = settings(json!({ "backoff": backoff, "max_attempts": 6 }))
            .policy()
            .unwrap();
        let wait = |attempt| policy.delay(attempt, 0.5).map(|delay| delay.as_secs());
        (1..=6).map(wait).collect::<Vec<_>>()
    };
    let usual = [Some(5), Some(10), Some(20), Some(40), Some(80), None];
    assert_eq!(delays(json!([5, 10, 20, 40, 80, 160])), usual);
    assert_eq!(
        delays(json!([5, 10])),
        [Some(5), Some(10), Some(10), Some(10), Some(10), None]
    );
}

#[tokio::test]
async fn correction_10_a_key_outlives_its_row() {
    let fixture = Fixture::new().await;
    let broker = paper(json!([]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "succeeded").await;
    fixture
        .execute("update orders.outbox_orders set finished_at = now() - interval '1 year'")
        .await;
    cleaning::clean_once(fixture.pool.clone(), Duration::from_secs(60))
        .await
        .unwrap();
    let (status, view) = fixture.post(order("k-1")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (&view["status"], &view["outbox"]),
        (&json!("succeeded"), &json!(null))
    );
    assert_eq!(broker.orders()["k-1"].posts, 1);
}
