//! Alerts are shown, and notified once when they fire and once when they resolve, by whichever process evaluates them.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use postrider_testkit::{TestDb, builders::Serve, within};
use postrider_web::http_client::webhook::{signature, signing_key};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::program::{BINARY, Serving, data_dir, run_with, stdout};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

type Got = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// A receiver that rejects the first call and accepts all others.
async fn receiver() -> (String, Got) {
    async fn take(State(got): State<Got>, headers: HeaderMap, body: String) -> StatusCode {
        let mut got = got.lock().unwrap();
        got.push((headers, body));
        if got.len() == 1 {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::NO_CONTENT
        }
    }
    let got = Got::default();
    let router = Router::new()
        .route("/alerts", post(take))
        .with_state(Arc::clone(&got));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/alerts", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, got)
}

async fn start(dir: &std::path::Path, db: &TestDb, url: &str) -> Serving {
    let mut command = Serve::new(BINARY, dir)
        .args(&["--database-url", db.url().as_str()])
        .command();
    command
        .env("POSTRIDER_ALERTS__URL", url)
        .env("POSTRIDER_ALERTS__SECRET", SECRET)
        .env("POSTRIDER_ALERTS__EVERY", "1s");
    Serving::start(&command).await
}

/// The received notifications as (type, name, subject), in order; each is signed, and each id occurs once.
fn notifications(got: &Got) -> Vec<(String, String, String)> {
    let key = signing_key(SECRET).unwrap();
    let got = got.lock().unwrap();
    let mut ids = std::collections::BTreeSet::new();
    let mut taken = Vec::new();
    for (place, (headers, body)) in got.iter().enumerate() {
        let text = |name| headers[name].to_str().unwrap();
        let id: Uuid = text("webhook-id").parse().unwrap();
        let at = text("webhook-timestamp").parse().unwrap();
        assert_eq!(text("webhook-signature"), signature(&key, id, at, body));
        if place == 0 {
            continue;
        }
        assert!(ids.insert(id), "each is taken once");
        let body: Value = serde_json::from_str(body).unwrap();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let alert = &body["alert"];
        taken.push((
            word(&body["type"]),
            word(&alert["name"]),
            word(&alert["subject"]),
        ));
    }
    taken
}

#[tokio::test]
async fn alert_is_shown_and_notified_once_when_it_fires_and_once_when_it_resolves() {
    let (db, dirs) = (TestDb::new().await, [data_dir(), data_dir()]);
    let (url, got) = receiver().await;
    // Two processes that could both evaluate.
    let serving = start(dirs[0].path(), &db, &url).await;
    let other = start(dirs[1].path(), &db, &url).await;
    let order = json!({
        "idempotency_key": "late", "account": "A1", "symbol": "ACME", "side": "buy", "quantity": "1",
        "type": "market", "expires_at": "2020-01-01T00:00:00Z"
    });
    let sent = serving.post("/do/order").json(&order).send().await.unwrap();
    assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
    let subject = "orders.outbox_orders";
    let firing = (
        "alert.firing".to_owned(),
        "DeadLetters".to_owned(),
        subject.to_owned(),
    );
    within(TIMEOUT, "the alert is notified", async || {
        let notifications = notifications(&got);
        if notifications.contains(&firing) {
            Ok(())
        } else {
            Err(notifications)
        }
    })
    .await;
    let shown = serving.json("/alerts").await;
    let alert = &shown["alerts"][0];
    assert_eq!(alert["name"], "DeadLetters", "{shown}");
    assert_eq!(alert["subject"], subject);
    assert_eq!(alert["state"], "firing");
    assert_eq!(alert["severity"], "warning");
    assert_eq!(alert["value"], 1.0);
    let listed = run_with(&["alerts", "list", "--server", other.base()]).await;
    assert!(stdout(&listed).contains("DeadLetters"), "{listed:?}");

    sqlx::query("update postrider.attempt set at = at - interval '2 hours'")
        .execute(&db.pool())
        .await
        .unwrap();
    let resolved = (
        "alert.resolved".to_owned(),
        firing.1.clone(),
        firing.2.clone(),
    );
    within(TIMEOUT, "its resolution is notified", async || {
        let notifications = notifications(&got);
        if notifications.contains(&resolved) {
            Ok(())
        } else {
            Err(notifications)
        }
    })
    .await;
    // Some more looks, by either of them, change nothing.
    let looks = "select term, ran_at from postrider.leader where name = 'alerts'";
    let before: (i64, time::OffsetDateTime) =
        sqlx::query_as(looks).fetch_one(&db.pool()).await.unwrap();
    assert!(serving.terminate().await.success());
    within(TIMEOUT, "the other one evaluates", async || {
        let now: (i64, time::OffsetDateTime) =
            sqlx::query_as(looks).fetch_one(&db.pool()).await.unwrap();
        now.1 > before.1 + time::Duration::seconds(3)
    })
    .await;
    assert_eq!(notifications(&got), [firing, resolved]);
    let shown = other.json("/alerts").await;
    assert_eq!(shown["alerts"][0]["state"], "resolved", "{shown}");
    assert!(other.terminate().await.success());
}
