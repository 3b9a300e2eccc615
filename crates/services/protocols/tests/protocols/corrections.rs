//! Each correction of the pattern's text, by its number.

use std::time::Duration;

use axum::http::StatusCode;
use postrider::lease::{Operator, Queue};
use postrider_protocols::OUTBOX;
use serde_json::json;

use crate::support::{House, Reply, SHORT, StageServer, eventually, settings, with_stages};

#[tokio::test]
async fn correction_1_a_failed_event_is_polled_again_only_after_its_backoff() {
    let house = House::new().await;
    let (server, url) = StageServer::start(|_, _| Reply::status(500)).await;
    house.work(&with_stages(
        &url,
        "",
        json!({ "retry": { "initial_delay": "10m" } }),
    ));
    let id = house.upload_text("text").await;
    house.stands(&id, "extraction_failed").await;
    let waits: bool = sqlx::query_scalar(
        "select due > now() + interval '7 minutes' from protocols.outbox where status = 'failed'",
    )
    .fetch_one(&house.pool)
    .await
    .unwrap();
    assert!(waits, "it is due after the backoff");
    // Another protocol goes through the same queue meanwhile: the failed one stays where it is.
    let other = house.upload_text("text").await;
    house.stands(&other, "extraction_failed").await;
    assert_eq!(server.counts()[&(id, 1)], 1);
}

#[tokio::test]
async fn correction_2_retries_at_once_queue_one_event() {
    let house = House::new().await;
    let id = dead(&house).await;
    let answers = futures_util::future::join_all((0..8).map(|_| house.retry(&id))).await;
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
        house.events(&id).await,
        [fresh],
        "one event, and the old one is out of the way"
    );
    let view = house.get(&id).await;
    assert_eq!(
        (&view["status"], &view["error_reason"]),
        (&json!("uploaded"), &json!(null))
    );
    assert!(view["metadata"].get("error").is_none());
    house.assert_sound().await;
}

/// A protocol that was given up, and no worker any more.
async fn dead(house: &House) -> String {
    let stop = tokio_util::sync::CancellationToken::new();
    house.work_until(&settings(json!({})), stop.clone());
    let id = house.upload("application/pdf", "no PDF").await;
    house.stands(&id, "dead_letter").await;
    stop.cancel();
    id
}

#[tokio::test]
async fn correction_3_a_late_death_of_an_older_try_does_not_touch_the_retried_protocol() {
    let house = House::new().await;
    // The first call of the first try fails for good, but long after its protocol was retried.
    let (server, url) = StageServer::start(move |number, _| match number {
        0 => Reply::status(422).after(Duration::from_secs(3)),
        _ => Reply::criteria(),
    })
    .await;
    let one = with_stages(
        &url,
        "",
        json!({ "max_retries": 1, "concurrency": 1, "lease": { "seconds": 30 } }),
    );
    house.work(&one);
    let id = house.upload_text("text").await;
    eventually("the first try is at the stage", async || {
        server.calls().len() == 1
    })
    .await;
    // As if its step had failed elsewhere meanwhile: the person sees a failure and retries.
    house
        .force("update protocols.protocol set status = 'extraction_failed', error_reason = 'lost'")
        .await;
    assert_eq!(house.retry(&id).await.status, StatusCode::OK);
    let view = house.get(&id).await;
    assert_eq!(
        (&view["status"], &view["try"]),
        (&json!("uploaded"), &json!(2))
    );
    let view = house.stands(&id, "pending_review").await;
    assert_eq!(
        (&view["try"], &view["error_reason"]),
        (&json!(2), &json!(null))
    );
    assert_eq!(server.counts()[&(id.clone(), 1)], 1);
    assert_eq!(server.counts()[&(id.clone(), 2)], 1);
    house.settled().await;
    assert_eq!(house.get(&id).await["status"], "pending_review");
    house.assert_sound().await;
}

#[tokio::test]
async fn correction_3_a_late_duplicate_does_not_turn_complete_into_dead_letter() {
    let house = House::new().await;
    let (server, url) = StageServer::start(|number, _| match number {
        0 => Reply::criteria(),
        _ => Reply::status(422),
    })
    .await;
    house.work(&with_stages(&url, "", json!({})));
    let id = house.upload_text("text").await;
    house.stands(&id, "pending_review").await;
    house.review(&id, json!({ "decision": "approve" })).await;
    // Each event once more, as if it had never been published.
    house
        .execute("update protocols.outbox set status = 'pending', finished_at = null, due = now()")
        .await;
    house.settled().await;
    assert_eq!(house.get(&id).await["status"], "complete");
    assert_eq!(server.calls().len(), 1, "nobody was asked again");
}

#[tokio::test]
async fn duplicates_of_each_event_change_nothing_in_any_state() {
    let house = House::new().await;
    let (extraction, extraction_url) = StageServer::start(|_, _| Reply::criteria()).await;
    let (grounding, grounding_url) = StageServer::start(|_, _| Reply::criteria()).await;
    let settings = with_stages(&extraction_url, &grounding_url, json!({}));
    house.work(&settings);
    let id = house.upload_text("text").await;
    let before = house.stands(&id, "pending_review").await;
    let repeat = "update protocols.outbox set status = 'pending', finished_at = null, due = now(), retry_count = 0";
    house.execute(repeat).await;
    house.settled().await;
    assert_eq!(house.get(&id).await, before);
    // A second row of the same event is the same event.
    let twice = sqlx::query("insert into protocols.outbox (protocol_id, try, event_type) select protocol_id, try, event_type from protocols.outbox")
        .execute(&house.pool)
        .await;
    assert!(twice.is_err());
    house
        .review(&id, json!({ "decision": "reject", "reason": "once more" }))
        .await;
    house.stands(&id, "pending_review").await;
    house.execute(repeat).await;
    house.settled().await;
    let view = house.get(&id).await;
    assert_eq!(
        (&view["status"], &view["try"]),
        (&json!("pending_review"), &json!(2))
    );
    assert_eq!((extraction.calls().len(), grounding.calls().len()), (2, 2));
    house.assert_sound().await;
}

#[tokio::test]
async fn a_retry_retires_the_event_that_waits_for_its_next_attempt() {
    let house = House::new().await;
    let (server, url) = StageServer::start(|number, _| match number {
        0 => Reply::status(500),
        _ => Reply::criteria(),
    })
    .await;
    house.work(&with_stages(
        &url,
        "",
        json!({ "retry": { "initial_delay": "1h" } }),
    ));
    let id = house.upload_text("text").await;
    house.stands(&id, "extraction_failed").await;
    assert_eq!(house.retry(&id).await.status, StatusCode::OK);
    house.stands(&id, "pending_review").await;
    assert_eq!(server.counts()[&(id.clone(), 1)], 1);
    assert!(
        house
            .events(&id)
            .await
            .iter()
            .all(|event| event.1 == 2 && event.2 == "published")
    );
    assert_eq!(
        house.number("select count(*) from postrider.archive").await,
        1
    );
    assert_eq!(
        house
            .number("select count(*) from postrider.audit where action = 'retry'")
            .await,
        1
    );
    house.assert_sound().await;
}

#[tokio::test]
async fn a_running_try_can_not_be_retried() {
    let house = House::new().await;
    let (server, url) =
        StageServer::start(|_, _| Reply::criteria().after(Duration::from_secs(1))).await;
    house.work(&with_stages(&url, "", json!({})));
    let id = house.upload_text("text").await;
    eventually("the stage is at it", async || server.calls().len() == 1).await;
    let answer = house.retry(&id).await;
    assert_eq!(
        (answer.status, answer.json()["status_now"].clone()),
        (StatusCode::BAD_REQUEST, json!("extracting"))
    );
    house.stands(&id, "pending_review").await;
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test]
async fn a_redriven_dead_letter_begins_the_next_try() {
    let house = House::new().await;
    let id = dead(&house).await;
    let event: i64 = house.number("select id from protocols.outbox").await;
    let mut tx = house.pool.begin().await.unwrap();
    let queue = Queue::new(&OUTBOX).unwrap();
    queue
        .redrive(&mut tx, &Operator::new("somebody"), &[event])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    // The cause was mended meanwhile: the document is text after all.
    house
        .execute("update protocols.protocol set media_type = 'text/plain'")
        .await;
    house.work(&settings(json!({})));
    let view = house.stands(&id, "pending_review").await;
    assert_eq!(view["try"], 2);
    assert!(view["metadata"].get("error").is_none());
    house.settled().await;
    house.assert_sound().await;
}

#[tokio::test]
async fn every_statement_of_the_lifecycle_is_valid_sql() {
    let house = House::new().await;
    house.upload_text(SHORT).await;
    let queue = Queue::new(&OUTBOX).unwrap();
    let mut connection = house.pool.acquire().await.unwrap();
    for (name, text) in queue.statements() {
        use sqlx::{Executor, SqlSafeStr};
        let prepared = connection
            .prepare(sqlx::AssertSqlSafe(text).into_sql_str())
            .await;
        assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
    }
}
