//! Authentication, scopes and the responses to rejected calls.

use postrider_testkit::TestDb;
use serde_json::{Value, json};

use crate::program::{Serving, data_dir, run_with, stdout};

async fn token(scopes: &str) -> (String, String) {
    let made = run_with(&[
        "token",
        "--name",
        &scopes.replace(',', "-"),
        "--scopes",
        scopes,
        "--json",
    ])
    .await;
    let made: Value = serde_json::from_str(&stdout(&made)).unwrap();
    let scopes: Vec<&str> = made["scopes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_str().unwrap())
        .collect();
    let entry = format!(
        "{{ name = {}, sha256 = {}, scopes = {scopes:?} }}",
        made["name"], made["sha256"]
    );
    (made["token"].as_str().unwrap().to_owned(), entry)
}

#[tokio::test]
async fn routes_require_their_scope_when_tokens_are_configured() {
    let (reader, reader_entry) = token("read").await;
    let (sender, sender_entry) = token("submit").await;
    let db = TestDb::new().await;
    let dir = data_dir();
    let tokens = format!("server.tokens=[{reader_entry}, {sender_entry}]");
    let serving = Serving::on(dir.path(), &["--database-url", &db.url(), "--set", &tokens]).await;

    let status = async |token: Option<&str>| {
        let mut request = serving.get("/metrics");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(Some(&reader)).await, 200);
    assert_eq!(status(Some(&sender)).await, 403);
    assert_eq!(status(Some("pt_wrong")).await, 401);
    assert_eq!(status(None).await, 401);
    let probe = serving.get("/readyz").send().await.unwrap();
    assert_eq!(probe.status(), 200, "probes need no token");
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn internal_route_rejects_tokens_without_the_internal_scope() {
    let (caller, caller_entry) = token("submit,read,operate").await;
    let (wallet, wallet_entry) = token("internal").await;
    let db = TestDb::new().await;
    let dir = data_dir();
    let tokens = format!("server.tokens=[{caller_entry}, {wallet_entry}]");
    let words = [
        "--roles",
        "api",
        "--database-url",
        &db.url(),
        "--set",
        &tokens,
    ];
    let serving = Serving::on(dir.path(), &words).await;
    let base = serving.base().to_owned();
    let http = reqwest::Client::new();
    let pay = json!({ "account_id": "acc-1", "amount": "1", "currency": "USD" });
    let accepted = http
        .post(format!("{base}/payments"))
        .bearer_auth(&caller)
        .json(&pay);
    let accepted: Value = accepted.send().await.unwrap().json().await.unwrap();
    let uuid = accepted["uuid"].as_str().unwrap();
    let put = async |token: Option<&str>| {
        let body = json!({ "status": "FAILED", "reason": "TEST" });
        let mut request = http
            .put(format!("{base}/internal/requests/{uuid}"))
            .json(&body);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(
        put(Some(&caller)).await,
        403,
        "all other scopes are not enough"
    );
    assert_eq!(put(Some("pt_wrong")).await, 401);
    assert_eq!(put(None).await, 401);
    let shown = serving
        .get(&format!("/payments/{uuid}"))
        .bearer_auth(&caller);
    let shown: Value = shown.send().await.unwrap().json().await.unwrap();
    assert_eq!(shown["status"], "PENDING", "a refused call does nothing");
    assert_eq!(put(Some(&wallet)).await, 200);
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn every_rejection_is_a_problem_document_with_an_error_page() {
    let db = TestDb::new().await;
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &["--database-url", &db.url()]).await;
    let response = serving.get("/no/such/path").send().await.unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let id = response.headers()["x-request-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["code"], "not-found");
    assert_eq!(problem["request_id"], id.as_str());
    let page = serving
        .get(problem["type"].as_str().unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(page.status(), 200);
    assert!(page.text().await.unwrap().contains("## What to do"));
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn api_serves_its_openapi_document_and_reference_page() {
    let db = TestDb::new().await;
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &["--database-url", &db.url()]).await;
    let document = serving.json("/openapi.json").await;
    let printed = run_with(&["openapi"]).await;
    assert_eq!(
        document,
        serde_json::from_slice::<Value>(&printed.stdout).unwrap(),
        "printed and served are one"
    );
    let page = serving.get("/reference").send().await.unwrap();
    assert!(
        page.headers()["content-security-policy"]
            .to_str()
            .unwrap()
            .contains("default-src 'self'")
    );
    let page = page.text().await.unwrap();
    for path in document["paths"].as_object().unwrap().keys() {
        assert!(page.contains(path.as_str()), "the page lacks {path}");
    }
    assert!(!page.contains("<script"), "the page works without script");
    let metrics = serving
        .get("/metrics")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(metrics.contains("http_requests_total"));
    assert!(serving.terminate().await.success());
}
