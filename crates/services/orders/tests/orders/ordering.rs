//! Orders of one account, or of one symbol, are sent one after the other, if that is configured.

use std::sync::{Arc, Mutex};

use axum::http::Method;
use futures_util::future::{BoxFuture, join_all};
use postrider_orders::{
    Ordering,
    broker::{Broker, Kind, Refusal},
};
use serde_json::{Value, json};

use crate::support::{House, eventually, of_symbol, order, paper, settings};

/// Notes what begins and what ends, and refuses the first call of some.
#[derive(Default)]
struct Watched {
    log: Mutex<Vec<(String, &'static str)>>,
    stumbles: Mutex<Vec<String>>,
}

impl Watched {
    fn note(&self, id: &str, what: &'static str) {
        self.log.lock().unwrap().push((id.to_owned(), what));
    }

    fn log(&self) -> Vec<(String, &'static str)> {
        self.log.lock().unwrap().clone()
    }
}

impl Broker for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn send(&self, order: Value) -> BoxFuture<'_, Result<Value, Refusal>> {
        Box::pin(async move {
            let id = order["client_order_id"].as_str().unwrap();
            self.note(id, "begins");
            // Others that may go at the same time get the chance to.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let stumbles = {
                let mut all = self.stumbles.lock().unwrap();
                let before = all.len();
                all.retain(|other| other != id);
                all.len() < before
            };
            if stumbles {
                self.note(id, "stumbles");
                return Err(Refusal::status(503, Kind::NotTaken, None));
            }
            self.note(id, "ends");
            Ok(json!({ "broker_order_id": id, "status": "ok" }))
        })
    }

    fn look_up<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Value>, Refusal>> {
        Box::pin(async { Ok(None) })
    }
}

fn of_account(key: &str, account: &str) -> Value {
    let mut order = order(key);
    order["account"] = json!(account);
    order
}

async fn all_sent(house: &House) {
    eventually("every order is sent", async || {
        let left: i64 = sqlx::query_scalar(
            "select count(*) from orders.outbox_orders where status <> 'succeeded'",
        )
        .fetch_one(&house.pool)
        .await
        .unwrap();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
}

#[tokio::test]
async fn orders_of_one_account_are_sent_one_after_the_other_and_a_failed_one_is_waited_for() {
    let house = House::ordered(Ordering::Account).await;
    let broker = Arc::new(Watched::default());
    broker.stumbles.lock().unwrap().push("A-1".to_owned());
    for n in 0..4 {
        for account in ["A", "B", "C"] {
            house
                .post(of_account(&format!("{account}-{n}"), account))
                .await;
        }
    }
    for _ in 0..2 {
        house.work(&settings(json!({})), broker.clone());
    }
    all_sent(&house).await;
    for account in ["A", "B", "C"] {
        let mut expected = Vec::new();
        for n in 0..4 {
            if (account, n) == ("A", 1) {
                expected.extend([("A-1".to_owned(), "begins"), ("A-1".to_owned(), "stumbles")]);
            }
            expected.extend(["begins", "ends"].map(|what| (format!("{account}-{n}"), what)));
        }
        let seen: Vec<_> = broker
            .log()
            .into_iter()
            .filter(|(id, _)| id.starts_with(account))
            .collect();
        assert_eq!(seen, expected, "in line");
    }
}

#[tokio::test]
async fn orders_posted_at_once_share_a_commit_and_still_go_one_at_a_time() {
    let house = House::ordered(Ordering::Symbol).await;
    let broker = Arc::new(Watched::default());
    house.work(&settings(json!({})), broker.clone());
    let symbols = ["X", "Y"];
    let posts = (0..40).map(|n| house.post(of_symbol(&format!("k-{n}"), symbols[n % 2])));
    join_all(posts).await;
    all_sent(&house).await;
    for parity in 0..2 {
        let log: Vec<_> = broker
            .log()
            .into_iter()
            .filter(|(id, _)| id[2..].parse::<usize>().unwrap() % 2 == parity)
            .collect();
        assert_eq!(log.len(), 40);
        for pair in log.chunks(2) {
            assert_eq!((&pair[0].0, pair[0].1), (&pair[1].0, "begins"));
            assert_eq!(pair[1].1, "ends");
        }
    }
}

#[tokio::test]
async fn without_an_ordering_a_failed_order_holds_nobody_up() {
    let house = House::new().await;
    let broker = Arc::new(Watched::default());
    broker.stumbles.lock().unwrap().push("k-0".to_owned());
    for n in 0..2 {
        house.post(order(&format!("k-{n}"))).await;
    }
    house.work(&settings(json!({ "backoff": [3600] })), broker.clone());
    house.stands("k-1", "succeeded").await;
    house.stands("k-0", "failed").await;
}

#[tokio::test]
async fn a_head_that_is_cancelled_or_aborted_makes_way_for_the_next() {
    let house = House::ordered(Ordering::Account).await;
    for key in ["cancelled", "NOPE", "sent"] {
        house.post(of_symbol(key, key)).await;
    }
    let parked: Vec<Option<String>> =
        sqlx::query_scalar("select parked from orders.outbox_orders order by id")
            .fetch_all(&house.pool)
            .await
            .unwrap();
    assert_eq!(
        parked,
        [None, Some("behind".to_owned()), Some("behind".to_owned())]
    );
    let (status, _) = house
        .call(Method::POST, "/do/order/cancelled/cancel", None)
        .await;
    assert!(status.is_success());
    let rules =
        json!([{ "symbol": "NOPE", "do": { "reject": { "reason_code": "UNKNOWN_SYMBOL" } } }]);
    house.work(&settings(json!({})), paper(rules));
    house.stands("NOPE", "aborted").await;
    house.stands("sent", "succeeded").await;
}

#[tokio::test]
async fn an_order_behind_another_can_be_cancelled() {
    let house = House::ordered(Ordering::Account).await;
    for key in ["head", "behind", "last"] {
        house.post(order(key)).await;
    }
    let (status, view) = house
        .call(Method::POST, "/do/order/behind/cancel", None)
        .await;
    assert!(status.is_success(), "{view}");
    let broker = paper(json!([]));
    house.work(&settings(json!({})), broker.clone());
    house.stands("last", "succeeded").await;
    assert_eq!(broker.orders().len(), 2);
}

#[tokio::test]
async fn an_order_that_is_redriven_queues_up_behind_its_account() {
    let house = House::ordered(Ordering::Account).await;
    let broker = paper(json!([{ "times": 1, "do": { "reject": { "reason_code": "NO_FUNDS" } } }]));
    house.work(&settings(json!({})), broker.clone());
    house.post(order("k-1")).await;
    house.stands("k-1", "aborted").await;
    let (status, view) = house
        .call(
            Method::POST,
            "/do/order/k-1/redrive",
            Some(json!({ "allow_stale": true })),
        )
        .await;
    assert!(status.is_success(), "{view}");
    house.stands("k-1", "succeeded").await;
}
