//! The corrections to the specification, by number.

use std::time::Duration;

use axum::http::StatusCode;
use postrider::lease::{Operator, Queue};
use postrider_protocols::OUTBOX;
use serde_json::json;

use crate::support::{Fixture, Reply, SHORT, StageServer, eventually, settings, with_stages};

#[tokio::test]
async fn correction_1_failed_event_is_claimed_again_only_after_its_backoff() {
    let fixture = Fixture::new().await;
    let (server, url) = StageServer::start(|_, _| Reply::status(500)).await;
    fixture.start_worker(&with_stages(
        &url,
        "",
        json!({ "retry": { "initial_delay": "10m" } }),
    ));
    let id = fixture.upload_text("text").await;
    fixture.wait_for_status(&id, "extraction_failed").await;
    let waits: bool = sqlx::query_scalar(
        "select due > now() + interval '7 minutes' from protocols.outbox where status = 'failed'",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert!(waits, "due after the backoff");
    // Another protocol goes through the same queue meanwhile; the failed one stays.
    let other = fixture.upload_text("text").await;
    fixture.wait_for_status(&other, "extraction_failed").await;
    assert_eq!(server.counts()[&(id, 1)], 1);
}

#[tokio::test]
async fn correction_2_concurrent_retries_queue_one_event() {
    let fixture = Fixture::new().await;
    let id = dead(&fixture).await;
    let answers = futures_util::future::join_all((0..8).map(|_| fixture.retry(&id))).await;
    let (queued, refused): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|answer| answer.status == StatusCode::OK);
    assert_eq!((queued.len(), refused.len()), (1, 7));
    assert_eq!(
        queued[0].json(),
        json!({ "status": "retry_queued", "protocol_id": id })
    );
    for answer in refused {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert_eq!(answer.json()["code"], "protocol-not-retryable");
    }
    let fresh = ("PROTOCOL_UPLOADED".to_owned(), 2, "pending".to_owned(), 0);
    assert_eq!(
        fixture.events(&id).await,
        [fresh],
        "one event, and the old one is retired"
    );
    let view = fixture.get(&id).await;
    assert_eq!(
        (&view["status"], &view["error_reason"]),
        (&json!("uploaded"), &json!(null))
    );
    assert!(view["metadata"].get("error").is_none());
    fixture.assert_invariants().await;
}

/// A dead letter, with no worker running any more.
async fn dead(fixture: &Fixture) -> String {
    let stop = tokio_util::sync::CancellationToken::new();
    fixture.start_worker_until(&settings(json!({})), stop.clone());
    let id = fixture.upload("application/pdf", "%PDF-garbage").await;
    fixture.wait_for_status(&id, "dead_letter").await;
    stop.cancel();
    id
}

#[tokio::test]
async fn correction_3_late_failure_of_an_older_try_does_not_touch_the_retried_protocol() {
    let fixture = Fixture::new().await;
    // The first call of the first try fails permanently, but long after its protocol was retried.
    let (server, url) = StageServer::start(move |number, _| match number {
        0 => Reply::status(422).delayed(Duration::from_secs(3)),
        _ => Reply::criteria(),
    })
    .await;
    let one = with_stages(
        &url,
        "",
        json!({ "max_retries": 1, "concurrency": 1, "lease": { "seconds": 30 } }),
    );
    fixture.start_worker(&one);
    let id = fixture.upload_text("text").await;
    eventually("the first try has called the stage", async || {
        server.calls().len() == 1
    })
    .await;
    // As if its step had failed elsewhere meanwhile: the operator sees a failure and retries.
    fixture
        .execute_unguarded(
            "update protocols.protocol set status = 'extraction_failed', error_reason = 'lost'",
        )
        .await;
    assert_eq!(fixture.retry(&id).await.status, StatusCode::OK);
    let view = fixture.get(&id).await;
    assert_eq!(
        (&view["status"], &view["try"]),
        (&json!("uploaded"), &json!(2))
    );
    let view = fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!(
        (&view["try"], &view["error_reason"]),
        (&json!(2), &json!(null))
    );
    assert_eq!(server.counts()[&(id.clone(), 1)], 1);
    assert_eq!(server.counts()[&(id.clone(), 2)], 1);
    fixture.wait_until_idle().await;
    assert_eq!(fixture.get(&id).await["status"], "pending_review");
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn correction_3_late_duplicate_does_not_turn_complete_into_dead_letter() {
    let fixture = Fixture::new().await;
    let (server, url) = StageServer::start(|number, _| match number {
        0 => Reply::criteria(),
        _ => Reply::status(422),
    })
    .await;
    fixture.start_worker(&with_stages(&url, "", json!({})));
    let id = fixture.upload_text("text").await;
    fixture.wait_for_status(&id, "pending_review").await;
    fixture.review(&id, json!({ "decision": "approve" })).await;
    // Deliver each event again, as if it had never been published.
    fixture
        .execute("update protocols.outbox set status = 'pending', finished_at = null, due = now()")
        .await;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.get(&id).await["status"], "complete");
    assert_eq!(server.calls().len(), 1, "the stage was not called again");
}

#[tokio::test]
async fn duplicate_events_change_nothing_in_any_state() {
    let fixture = Fixture::new().await;
    let (extraction, extraction_url) = StageServer::start(|_, _| Reply::criteria()).await;
    let (grounding, grounding_url) = StageServer::start(|_, _| Reply::criteria()).await;
    let settings = with_stages(&extraction_url, &grounding_url, json!({}));
    fixture.start_worker(&settings);
    let id = fixture.upload_text("text").await;
    let before = fixture.wait_for_status(&id, "pending_review").await;
    let repeat = "update protocols.outbox set status = 'pending', finished_at = null, due = now(), retry_count = 0";
    fixture.execute(repeat).await;
    fixture.wait_until_idle().await;
    assert_eq!(fixture.get(&id).await, before);
    // A second row for the same event violates the unique constraint.
    let twice = sqlx::query("insert into protocols.outbox (protocol_id, try, event_type) select protocol_id, try, event_type from protocols.outbox")
        .execute(&fixture.pool)
        .await;
    assert!(twice.is_err());
    fixture
        .review(&id, json!({ "decision": "reject", "reason": "once more" }))
        .await;
    fixture.wait_for_status(&id, "pending_review").await;
    fixture.execute(repeat).await;
    fixture.wait_until_idle().await;
    let view = fixture.get(&id).await;
    assert_eq!(
        (&view["status"], &view["try"]),
        (&json!("pending_review"), &json!(2))
    );
    assert_eq!((extraction.calls().len(), grounding.calls().len()), (2, 2));
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn retry_retires_the_event_that_waits_for_its_next_attempt() {
    let fixture = Fixture::new().await;
    let (server, url) = StageServer::start(|number, _| match number {
        0 => Reply::status(500),
        _ => Reply::criteria(),
    })
    .await;
    fixture.start_worker(&with_stages(
        &url,
        "",
        json!({ "retry": { "initial_delay": "1h" } }),
    ));
    let id = fixture.upload_text("text").await;
    fixture.wait_for_status(&id, "extraction_failed").await;
    assert_eq!(fixture.retry(&id).await.status, StatusCode::OK);
    fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!(server.counts()[&(id.clone(), 1)], 1);
    assert!(
        fixture
            .events(&id)
            .await
            .iter()
            .all(|event| event.1 == 2 && event.2 == "published")
    );
    assert_eq!(
        fixture
            .query_number("select count(*) from postrider.archive")
            .await,
        1
    );
    assert_eq!(
        fixture
            .query_number("select count(*) from postrider.audit where action = 'retry'")
            .await,
        1
    );
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn running_try_cannot_be_retried() {
    let fixture = Fixture::new().await;
    let (server, url) =
        StageServer::start(|_, _| Reply::criteria().delayed(Duration::from_secs(1))).await;
    fixture.start_worker(&with_stages(&url, "", json!({})));
    let id = fixture.upload_text("text").await;
    eventually("the stage was called", async || server.calls().len() == 1).await;
    let answer = fixture.retry(&id).await;
    assert_eq!(
        (answer.status, answer.json()["status_now"].clone()),
        (StatusCode::BAD_REQUEST, json!("extracting"))
    );
    fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn redriven_dead_letter_starts_the_next_try() {
    let fixture = Fixture::new().await;
    let id = dead(&fixture).await;
    let event: i64 = fixture
        .query_number("select id from protocols.outbox")
        .await;
    let mut tx = fixture.pool.begin().await.unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    queue
        .redrive(&mut tx, &Operator::new("somebody"), &[event])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    // The cause was fixed meanwhile: the document is text after all.
    fixture
        .execute("update protocols.protocol set media_type = 'text/plain'")
        .await;
    fixture.start_worker(&settings(json!({})));
    let view = fixture.wait_for_status(&id, "pending_review").await;
    assert_eq!(view["try"], 2);
    assert!(view["metadata"].get("error").is_none());
    fixture.wait_until_idle().await;
    fixture.assert_invariants().await;
}

#[tokio::test]
async fn every_lifecycle_statement_is_valid_sql() {
    let fixture = Fixture::new().await;
    fixture.upload_text(SHORT).await;
    let queue = Queue::new(&OUTBOX).unwrap();
    let mut connection = fixture.pool.acquire().await.unwrap();
    for (name, text) in queue.statements() {
        use sqlx::{Executor, SqlSafeStr};
        let prepared = connection
            .prepare(sqlx::AssertSqlSafe(text).into_sql_str())
            .await;
        assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
    }
}
