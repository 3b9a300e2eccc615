//! An unavailable service costs time, but no attempts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postrider::breaker::State;
use serde_json::json;

use crate::support::{Fixture, Reply, StageServer, eventually, settings, with_stages};

/// The outage lasts many times as long as the breaker stays open.
#[tokio::test]
async fn outage_opens_the_breaker_spends_no_attempt_and_all_work_completes_afterwards() {
    for down in [503, 502, 429] {
        let fixture = Fixture::new().await;
        let up = Arc::new(AtomicBool::new(false));
        let (server, url) = StageServer::start({
            let up = Arc::clone(&up);
            move |_, _| match up.load(Ordering::SeqCst) {
                true => Reply::criteria(),
                false => Reply::status(down),
            }
        })
        .await;
        let breaker = json!({ "breaker": { "threshold": 3, "open_for": 0.1 }, "retry": { "initial_delay": 0.02 } });
        let breakers = fixture.start_worker(&with_stages(&url, "", breaker));
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(fixture.upload_text("text").await);
        }
        let dependency = breakers.get("protocols.extraction");
        eventually("the breaker is open", async || {
            dependency.state() == State::Open
        })
        .await;
        // Far more calls than any protocol has attempts.
        eventually("the outage lasts", async || server.calls().len() > 25).await;
        assert_eq!(
            fixture
                .query_number("select coalesce(max(retry_count), 0)::bigint from protocols.outbox")
                .await,
            0
        );
        assert_eq!(
            fixture
                .query_number(
                    "select count(*) from protocols.protocol where status = 'dead_letter'"
                )
                .await,
            0
        );
        up.store(true, Ordering::SeqCst);
        for id in &ids {
            let view = fixture.wait_for_status(id, "pending_review").await;
            assert_eq!(
                (&view["try"], &view["error_reason"]),
                (&json!(1), &json!(null))
            );
        }
        fixture.assert_invariants().await;
    }
}

#[tokio::test]
async fn unreachable_service_is_waited_for() {
    let fixture = Fixture::new().await;
    // Nothing listens on this port: it was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{address}/stage");
    fixture.start_worker(&with_stages(
        &url,
        "",
        json!({ "breaker": { "threshold": 2, "open_for": 0.1 } }),
    ));
    let id = fixture.upload_text("text").await;
    let view = fixture.wait_for_status(&id, "extraction_failed").await;
    assert!(
        view["error_reason"]
            .as_str()
            .unwrap()
            .contains("gave no answer"),
        "{view}"
    );
    assert!(
        !view["error_reason"]
            .as_str()
            .unwrap()
            .contains(&address.to_string()),
        "no address in {view}"
    );
    assert_eq!(
        fixture
            .query_number("select max(retry_count)::bigint from protocols.outbox")
            .await,
        0
    );
}

#[tokio::test]
async fn attempts_are_spent_once_the_patience_is_over() {
    let fixture = Fixture::new().await;
    let (server, url) = StageServer::start(|_, _| Reply::status(503)).await;
    let mut change = json!({});
    change["stages"] = json!({ "timeout": "2s", "patience": 0, "extraction": { "url": url, "token": "" },
                               "grounding": { "url": "", "token": "" } });
    fixture.start_worker(&settings(change));
    let id = fixture.upload_text("text").await;
    let view = fixture.wait_for_status(&id, "dead_letter").await;
    assert_eq!(view["error_reason"], "Maximum retries exceeded");
    assert_eq!(server.calls().len(), 3);
}

#[tokio::test]
async fn missing_document_is_a_permanent_failure() {
    let fixture = Fixture::new().await;
    let lost = fixture.upload_text("text").await;
    let key = postrider_protocols::document::document_key(lost.parse().unwrap());
    fixture.store.delete(&key).await.unwrap();
    fixture.start_worker(&settings(json!({})));
    let view = fixture.wait_for_status(&lost, "dead_letter").await;
    assert_eq!(view["metadata"]["error"]["category"], "missing_document");
}

#[tokio::test]
async fn lease_is_renewed_during_a_slow_call_which_happens_once() {
    let fixture = Fixture::new().await;
    let (server, url) =
        StageServer::start(|_, _| Reply::criteria().delayed(Duration::from_millis(1500))).await;
    // Two workers with leases shorter than the call: the lease is renewed, and the other worker does not rescue it.
    let settings = with_stages(&url, "", json!({ "lease": { "seconds": 1 } }));
    fixture.start_worker(&settings);
    fixture.start_worker(&settings);
    let id = fixture.upload_text("text").await;
    fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!(server.calls().len(), 1);
}
