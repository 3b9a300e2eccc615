//! A service that is away costs nothing but time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postrider::breaker::State;
use serde_json::json;

use crate::support::{House, Reply, StageServer, eventually, settings, with_stages};

/// Down for many times the breaker's open time: an hour at a pace of seconds.
#[tokio::test]
async fn a_service_that_is_down_for_long_opens_the_breaker_spends_no_attempt_and_all_completes_when_it_returns()
 {
    for down in [503, 502, 429] {
        let house = House::new().await;
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
        let breakers = house.work(&with_stages(&url, "", breaker));
        let mut ids = Vec::new();
        for _ in 0..4 {
            ids.push(house.upload_text("text").await);
        }
        let dependency = breakers.get("protocols.extraction");
        eventually("the breaker is open", async || {
            dependency.state() == State::Open
        })
        .await;
        // Far more calls than any protocol has attempts.
        eventually("the outage lasts", async || server.calls().len() > 25).await;
        assert_eq!(
            house
                .number("select coalesce(max(retry_count), 0)::bigint from protocols.outbox")
                .await,
            0
        );
        assert_eq!(
            house
                .number("select count(*) from protocols.protocol where status = 'dead_letter'")
                .await,
            0
        );
        up.store(true, Ordering::SeqCst);
        for id in &ids {
            let view = house.stands(id, "pending_review").await;
            assert_eq!(
                (&view["try"], &view["error_reason"]),
                (&json!(1), &json!(null))
            );
        }
        house.assert_sound().await;
    }
}

#[tokio::test]
async fn a_service_that_does_not_answer_at_all_is_waited_for() {
    let house = House::new().await;
    // Nobody listens on this port: it was free a moment ago.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{address}/stage");
    house.work(&with_stages(
        &url,
        "",
        json!({ "breaker": { "threshold": 2, "open_for": 0.1 } }),
    ));
    let id = house.upload_text("text").await;
    let view = house.stands(&id, "extraction_failed").await;
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
        house
            .number("select max(retry_count)::bigint from protocols.outbox")
            .await,
        0
    );
}

#[tokio::test]
async fn patience_has_an_end() {
    let house = House::new().await;
    let (server, url) = StageServer::start(|_, _| Reply::status(503)).await;
    let mut change = json!({});
    change["stages"] = json!({ "timeout": "2s", "patience": 0, "extraction": { "url": url, "token": "" },
                               "grounding": { "url": "", "token": "" } });
    house.work(&settings(change));
    let id = house.upload_text("text").await;
    let view = house.stands(&id, "dead_letter").await;
    assert_eq!(view["error_reason"], "Maximum retries exceeded");
    assert_eq!(server.calls().len(), 3);
}

#[tokio::test]
async fn a_store_that_is_away_is_waited_for_and_a_missing_document_is_not() {
    let house = House::new().await;
    let lost = house.upload_text("text").await;
    let key = postrider_protocols::document::document_key(lost.parse().unwrap());
    house.store.delete(&key).await.unwrap();
    house.work(&settings(json!({})));
    let view = house.stands(&lost, "dead_letter").await;
    assert_eq!(view["metadata"]["error"]["category"], "missing_document");
}

#[tokio::test]
async fn a_slow_service_keeps_its_lease_and_is_called_once() {
    let house = House::new().await;
    let (server, url) =
        StageServer::start(|_, _| Reply::criteria().after(Duration::from_millis(1500))).await;
    // Two workers with leases shorter than the call: it is renewed, and nobody takes over.
    let settings = with_stages(&url, "", json!({ "lease": { "seconds": 1 } }));
    house.work(&settings);
    house.work(&settings);
    let id = house.upload_text("text").await;
    house.stands(&id, "pending_review").await;
    assert_eq!(server.calls().len(), 1);
}
