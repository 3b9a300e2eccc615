//! Ordering: orders of one account, or of one symbol, are sent one after another.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use futures_util::future::{BoxFuture, join_all};
use postrider_orders::{
    Ordering,
    broker::{Broker, BrokerError, ErrorKind},
};
use serde_json::{Value, json};

use crate::support::{Fixture, eventually, order, order_for_symbol, paper, settings};

/// Records when calls start and end, and fails the first call of some orders.
#[derive(Default)]
struct RecordingBroker {
    log: Mutex<Vec<(String, &'static str)>>,
    failing: Mutex<Vec<String>>,
}

impl RecordingBroker {
    fn record(&self, id: &str, what: &'static str) {
        self.log.lock().unwrap().push((id.to_owned(), what));
    }

    fn log(&self) -> Vec<(String, &'static str)> {
        self.log.lock().unwrap().clone()
    }
}

impl Broker for RecordingBroker {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, BrokerError>> {
        Box::pin(async move {
            let id = order["client_order_id"].as_str().unwrap();
            self.record(id, "start");
            // Gives concurrent calls a chance to overlap.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let failing = {
                let mut all = self.failing.lock().unwrap();
                let before = all.len();
                all.retain(|other| other != id);
                all.len() < before
            };
            if failing {
                self.record(id, "failure");
                return Err(BrokerError::status(503, ErrorKind::NotAccepted, None));
            }
            self.record(id, "end");
            Ok(json!({ "broker_order_id": id, "status": "ok" }))
        })
    }

    fn find<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Value>, BrokerError>> {
        Box::pin(async { Ok(None) })
    }
}

fn order_for_account(key: &str, account: &str) -> Value {
    let mut order = order(key);
    order["account"] = json!(account);
    order
}

async fn all_sent(fixture: &Fixture) {
    eventually("every order is sent", async || {
        let left: i64 = sqlx::query_scalar(
            "select count(*) from orders.outbox_orders where status <> 'succeeded'",
        )
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test]
async fn orders_of_one_account_are_sent_in_order_and_wait_for_a_failed_one() {
    let fixture = Fixture::with_ordering(Ordering::Account).await;
    let broker = Arc::new(RecordingBroker::default());
    broker.failing.lock().unwrap().push("A-1".to_owned());
    for n in 0..4 {
        for account in ["A", "B", "C"] {
            fixture
                .post(order_for_account(&format!("{account}-{n}"), account))
                .await;
        }
    }
    for _ in 0..2 {
        fixture.start_workers(&settings(json!({})), broker.clone());
    }
    all_sent(&fixture).await;
    for account in ["A", "B", "C"] {
        let mut expected = Vec::new();
        for n in 0..4 {
            if (account, n) == ("A", 1) {
                expected.extend([("A-1".to_owned(), "start"), ("A-1".to_owned(), "failure")]);
            }
            expected.extend(["start", "end"].map(|what| (format!("{account}-{n}"), what)));
        }
        let seen: Vec<_> = broker
            .log()
            .into_iter()
            .filter(|(id, _)| id.starts_with(account))
            .collect();
        assert_eq!(seen, expected, "in order");
    }
}

#[tokio::test]
async fn orders_that_share_a_commit_are_still_sent_one_at_a_time() {
    let fixture = Fixture::with_ordering(Ordering::Symbol).await;
    let broker = Arc::new(RecordingBroker::default());
    // Long enough that no lease expires on a busy machine: a rescued order would be sent twice.
    let settings = settings(json!({ "lease": { "seconds": 30 } }));
    fixture.start_workers(&settings, broker.clone());
    let symbols = ["X", "Y"];
    let posts = (0..40).map(|n| fixture.post(order_for_symbol(&format!("k-{n}"), symbols[n % 2])));
    join_all(posts).await;
    all_sent(&fixture).await;
    for parity in 0..2 {
        let log: Vec<_> = broker
            .log()
            .into_iter()
            .filter(|(id, _)| id[2..].parse::<usize>().unwrap() % 2 == parity)
            .collect();
        assert_eq!(log.len(), 40);
        for pair in log.chunks(2) {
            assert_eq!((&pair[0].0, pair[0].1), (&pair[1].0, "start"));
            assert_eq!(pair[1].1, "end");
        }
    }
}

#[tokio::test]
async fn without_ordering_a_failed_order_delays_no_other() {
    let fixture = Fixture::new().await;
    let broker = Arc::new(RecordingBroker::default());
    broker.failing.lock().unwrap().push("k-0".to_owned());
    for n in 0..2 {
        fixture.post(order(&format!("k-{n}"))).await;
    }
    fixture.start_workers(&settings(json!({ "backoff": [3600] })), broker.clone());
    fixture.wait_for_status("k-1", "succeeded").await;
    fixture.wait_for_status("k-0", "failed").await;
}

#[tokio::test]
async fn a_cancelled_or_aborted_head_unblocks_the_next_order() {
    let fixture = Fixture::with_ordering(Ordering::Account).await;
    for key in ["cancelled", "NOPE", "sent"] {
        fixture.post(order_for_symbol(key, key)).await;
    }
    let parked: Vec<Option<String>> =
        sqlx::query_scalar("select parked from orders.outbox_orders order by id")
            .fetch_all(&fixture.pool)
            .await
            .unwrap();
    assert_eq!(
        parked,
        [None, Some("behind".to_owned()), Some("behind".to_owned())]
    );
    let (status, _) = fixture
        .call(Method::POST, "/do/order/cancelled/cancel", None)
        .await;
    assert!(status.is_success());
    let rules =
        json!([{ "symbol": "NOPE", "do": { "reject": { "reason_code": "UNKNOWN_SYMBOL" } } }]);
    fixture.start_workers(&settings(json!({})), paper(rules));
    fixture.wait_for_status("NOPE", "aborted").await;
    fixture.wait_for_status("sent", "succeeded").await;
}

#[tokio::test]
async fn a_parked_order_can_be_cancelled() {
    let fixture = Fixture::with_ordering(Ordering::Account).await;
    for key in ["head", "behind", "last"] {
        fixture.post(order(key)).await;
    }
    let (status, view) = fixture
        .call(Method::POST, "/do/order/behind/cancel", None)
        .await;
    assert!(status.is_success(), "{view}");
    let broker = paper(json!([]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    fixture.wait_for_status("last", "succeeded").await;
    assert_eq!(broker.orders().len(), 2);
}

#[tokio::test]
async fn a_redriven_order_goes_to_the_end_of_its_account() {
    let fixture = Fixture::with_ordering(Ordering::Account).await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    fixture.start_workers(&settings(json!({})), broker.clone());
    fixture.post(order("k-1")).await;
    fixture.wait_for_status("k-1", "aborted").await;
    let (status, view) = fixture
        .call(
            Method::POST,
            "/do/order/k-1/redrive",
            Some(json!({ "allow_stale": true })),
        )
        .await;
    assert!(status.is_success(), "{view}");
    fixture.wait_for_status("k-1", "succeeded").await;
}
