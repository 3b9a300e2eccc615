//! The payer's trace context travels to the wallet over any transport, and back with the callback.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::{
    Router,
    extract::{Path, State},
    http::HeaderMap,
    routing::put,
};
use postrider_testkit::servers::Kind;
use postrider_testkit::{TestDb, within};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::carrier::Carrier;
use crate::program::{Serving, postrider, run_with, stdout};

const TIMEOUT: Duration = Duration::from_secs(90);

const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";

/// The headers of each callback.
type Got = Arc<Mutex<HashMap<Uuid, HeaderMap>>>;

/// A receiver of callbacks.
async fn orchestrator() -> (String, Got) {
    async fn callbacks(State(got): State<Got>, Path(uuid): Path<Uuid>, headers: HeaderMap) {
        got.lock().unwrap().insert(uuid, headers);
    }
    let got = Got::default();
    let routes = Router::new()
        .route("/internal/requests/{uuid}", put(callbacks))
        .with_state(Arc::clone(&got));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, got)
}

#[tokio::test]
async fn trace_context_travels_to_the_wallet_and_back_over_postgres() {
    follow(None, "chance").await;
}

#[tokio::test]
async fn trace_context_travels_to_the_wallet_and_back_over_a_broker_with_an_assured_callback() {
    follow(Some(Kind::Nats), "assured").await;
}

async fn follow(kind: Option<Kind>, mode: &str) {
    let db = TestDb::new().await;
    let Some(carrier) = Carrier::new(kind, &db).await else {
        return;
    };
    let (url, got) = orchestrator().await;
    let mut command = postrider(&["serve", "--listen", "127.0.0.1:0"]);
    command.args(["--database-url", &db.url()]);
    let mut own = carrier.settings();
    own.push(format!("payments.delivery={mode}"));
    own.push(format!("payments.callback.url={url}"));
    for setting in &own {
        command.args(["--set", setting]);
    }
    let serving = Serving::start(&command).await;

    let parent = format!("00-{TRACE_ID}-b7ad6b7169203331-01");
    let of = |span: &str| format!("00-{TRACE_ID}-{span}-00");
    let state = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7";
    let [traced, untraced] = [Uuid::now_v7(), Uuid::now_v7()];
    assert_eq!(pay(&serving, traced, &parent, state).await, 202);
    let other = of("00f067aa0ba902b7");
    assert_eq!(pay(&serving, traced, &other, "").await, 200, "the same");
    let no_trace = of("0000000000000000");
    assert_eq!(pay(&serving, untraced, &no_trace, state).await, 202);

    within(TIMEOUT, "both callbacks arrived", async || {
        let callbacks = got.lock().unwrap().len();
        if callbacks == 2 {
            Ok(())
        } else {
            Err(callbacks)
        }
    })
    .await;
    let headers = |uuid: Uuid| {
        let got = got.lock().unwrap();
        ["traceparent", "tracestate"].map(|name| {
            let value = got[&uuid].get(name)?;
            Some(value.to_str().unwrap().to_owned())
        })
    };
    assert_eq!(headers(traced), [Some(parent), Some(state.to_owned())]);
    assert_eq!(headers(untraced), [None, None]);

    let words = ["trace", TRACE_ID, "--server", serving.base(), "--json"];
    let timeline: Value = serde_json::from_str(&stdout(&run_with(&words).await)).unwrap();
    let subjects = timeline["subjects"].as_array().unwrap();
    let payments: Vec<&Value> = subjects.iter().filter(|s| s["kind"] == "payment").collect();
    assert_eq!(payments.len(), 1, "{timeline}");
    assert_eq!(payments[0]["key"], json!(traced));
    assert!(
        subjects.iter().any(|s| s["kind"] == "message"),
        "{timeline}"
    );
}

async fn pay(serving: &Serving, uuid: Uuid, parent: &str, state: &str) -> u16 {
    let body = json!({ "uuid": uuid, "account_id": "acc-1", "amount": "1", "currency": "USD" });
    let post = serving.post("/payments").json(&body);
    let post = post
        .header("traceparent", parent)
        .header("tracestate", state);
    post.send().await.unwrap().status().as_u16()
}
