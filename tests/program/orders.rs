//! Orders from outside: the command line, and kills between the broker's acceptance and our commit.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use postrider_testkit::{Program, TestDb, within};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::program::{Serving, data_dir, postrider, run_with, stdout};

/// Number of orders of the crash test; override with `POSTRIDER_TEST_ORDERS`.
const ORDERS: usize = 600;

/// Minimum number of kills, and number of orders per kill.
const KILLS: usize = 5;
const ORDERS_PER_KILL: usize = 200;

pub fn order(key: &str) -> Value {
    json!({
        "version": "1.1", "idempotency_key": key, "account": "A1", "symbol": "ACME", "side": "buy", "quantity": "10",
        "type": "limit", "limit_price": "12.50", "time_in_force": "day", "expires_at": null, "tags": {}
    })
}

#[tokio::test]
async fn command_line_sends_shows_and_lists_an_order() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let server = serving.base().to_owned();
    let orders = async |more: &[&str]| {
        let output = run_with(&[&["orders", "--server", &server, "--json"], more].concat()).await;
        (output.status.code(), stdout(&output))
    };
    let send = [
        "send",
        "--key",
        "k-1",
        "--account",
        "A1",
        "--symbol",
        "ACME",
        "--side",
        "buy",
        "--quantity",
        "10",
        "--wait",
    ];
    let (code, sent) = orders(&send).await;
    assert_eq!(code, Some(0), "{sent}");
    let sent: Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(sent["status"], "succeeded");
    let (_, shown) = orders(&["show", "k-1"]).await;
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), sent);
    let (_, listed) = orders(&["list", "--status", "succeeded"]).await;
    assert_eq!(
        serde_json::from_str::<Value>(&listed).unwrap()["items"],
        json!([sent])
    );
    assert_eq!(orders(&["cancel", "k-1"]).await.0, Some(7), "too late");
    assert_eq!(
        orders(&["redrive", "k-1"]).await.0,
        Some(7),
        "not confirmed"
    );
    assert_eq!(orders(&["show", "nothing"]).await.0, Some(7));
    let metrics = serving
        .get("/metrics")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    for name in [
        "enqueued_total",
        "sent_total",
        "failed_total",
        "aborted_total",
        "age_seconds",
    ] {
        let name = format!("outbox_{name}{{table=\"outbox_orders\"}}");
        assert!(metrics.contains(&name), "{name} is not in\n{metrics}");
    }
}

/// A simulated broker in a separate process, so that its state survives ours.
pub async fn broker() -> (Program, String) {
    let mut program = Program::start(&postrider(&["sim", "broker", "--listen", "127.0.0.1:0"]));
    let line = program.line_with("listens on ").await;
    let url = line.split_once("listens on ").unwrap().1.trim().to_owned();
    (program, url)
}

pub fn serve(db: &TestDb, broker: &str) -> Command {
    let url = db.url();
    let broker = format!("orders.broker.url={broker}");
    postrider(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--database-url",
        &url,
        "--set",
        &broker,
        "--set",
        "orders.lease.seconds=1",
        "--set",
        "orders.concurrency=16",
        "--set",
        "orders.backoff=[0.2]",
    ])
}

/// Orders that the broker has and that we haven't recorded yet.
async fn between(pool: &PgPool, book: &HashMap<String, Value>) -> Vec<String> {
    let mut unsure: Vec<String> = sqlx::query_scalar(
        "select idempotency_key from orders.outbox_orders where finished_at is null and sent_at is not null",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    unsure.retain(|key| book.contains_key(key));
    unsure
}

#[tokio::test]
async fn after_kills_the_broker_has_each_order_once_and_the_ledger_agrees() {
    let count = std::env::var("POSTRIDER_TEST_ORDERS").map_or(ORDERS, |n| n.parse().unwrap());
    let db = TestDb::new().await;
    let (_broker, broker_url) = broker().await;
    // Also chooses the TLS provider that a client of our own needs.
    let mut serving = Serving::start(&serve(&db, &broker_url)).await;
    let http = reqwest::Client::new();
    let book = async || -> HashMap<String, Value> {
        let answer = http
            .get(format!("{broker_url}/orders"))
            .send()
            .await
            .unwrap();
        let mut answer: Value = answer.json().await.unwrap();
        serde_json::from_value(answer["orders"].take()).unwrap()
    };

    let server = Arc::new(Mutex::new(serving.base().to_owned()));
    let posts = tokio::spawn({
        let (server, http) = (Arc::clone(&server), http.clone());
        stream::iter(0..count).for_each_concurrent(32, move |n| {
            let (server, http) = (Arc::clone(&server), http.clone());
            async move {
                // A client that gets no answer repeats, with the same key, until it gets one.
                loop {
                    let url = format!("{}/do/order", server.lock().unwrap());
                    let post = http.post(url).json(&order(&format!("k-{n}"))).send().await;
                    if post.is_ok_and(|answer| answer.status().is_success()) {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        })
    });
    let pool = db.pool();
    let kills = KILLS.max(count / ORDERS_PER_KILL);
    let mut caught = HashSet::new();
    for kill in 1..=kills {
        let enough = count * kill / (kills + 1);
        within(
            Duration::from_secs(300),
            "the broker has some more",
            async || match book().await.len() {
                n if n >= enough => Ok(()),
                n => Err(n),
            },
        )
        .await;
        // At no particular moment after that.
        let moment = u64::from(RandomState::new().hash_one(kill) as u8);
        tokio::time::sleep(Duration::from_millis(moment)).await;
        serving.kill().await;
        caught.extend(between(&pool, &book().await).await);
        serving = Serving::start(&serve(&db, &broker_url)).await;
        serving.base().clone_into(&mut server.lock().unwrap());
    }
    posts.await.unwrap();
    within(
        Duration::from_secs(300),
        "every order is finished",
        async || {
            let left: i64 = sqlx::query_scalar(
                "select count(*) from orders.outbox_orders where finished_at is null",
            )
            .fetch_one(&pool)
            .await
            .unwrap();
            if left == 0 { Ok(()) } else { Err(left) }
        },
    )
    .await;
    let ledger: Vec<(String, String, Value)> =
        sqlx::query_as("select idempotency_key, status, result from orders.idempo_ledger")
            .fetch_all(&pool)
            .await
            .unwrap();
    let book = book().await;
    let caught = caught.len();
    println!("{count} orders, {kills} kills; {caught} were caught between acceptance and commit");
    assert!(caught > 0, "no kill came between acceptance and commit");
    assert_eq!((ledger.len(), book.len()), (count, count));
    for (key, status, result) in ledger {
        assert_eq!(status, "succeeded", "{key}");
        assert_eq!(
            book[&key]["posts"], 1,
            "{key} was handed over more than once"
        );
        assert_eq!(
            book[&key]["broker_order_id"], result["broker_order_id"],
            "{key}"
        );
    }
}
