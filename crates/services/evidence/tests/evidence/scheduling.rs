//! When retries are put.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{House, LONG, only, paper, quick_retries, within};

#[tokio::test]
async fn the_next_retry_follows_the_backoff_within_its_jitter() {
    let house = House::new().await;
    house.publish().await;
    house.arm();
    house.attach(paper(json!([{ "do": { "fail": { "status": 503 } } }])));
    let names: Vec<String> = (0..40).map(|n| format!("f{n}.pdf")).collect();
    let rows: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let rows: Vec<&[&str]> = rows.iter().map(<[&str; 1]>::as_slice).collect();
    let job = house.submit(&rows).await;
    house.tried(job).await;
    let waits = async || -> (f64, f64) {
        sqlx::query_as(
            "select min(extract(epoch from next_retry_at - updated_at))::float8,
                    max(extract(epoch from next_retry_at - updated_at))::float8
             from evidence.file_job_artifact",
        )
        .fetch_one(&house.pool)
        .await
        .unwrap()
    };
    let (least, most) = waits().await;
    assert!(
        least >= 240.0 && most <= 360.1 && most - least > 5.0,
        "{least}..{most}"
    );
    house.bring_due().await;
    house.schedule().await;
    house
        .until(job, "all were retried", |view| {
            view["rows"]
                .as_array()
                .unwrap()
                .iter()
                .all(|row| row["artifacts"][0]["attempt_count"] == 2)
        })
        .await;
    let (least, most) = waits().await;
    assert!(least >= 480.0 && most <= 720.1, "{least}..{most}");
}

#[tokio::test]
async fn a_wait_that_the_case_api_asks_for_is_kept_if_it_is_longer() {
    let house = House::with(quick_retries()).await;
    house.publish().await;
    house.arm();
    house.attach(paper(
        json!([{ "do": { "fail": { "status": 429, "retry_after": 1800 } } }]),
    ));
    let job = house.submit(&[&["a.pdf"]]).await;
    house.tried(job).await;
    let wait: f64 = house
        .scalar("select extract(epoch from next_retry_at - updated_at)::float8 from evidence.file_job_artifact")
        .await;
    assert!((1799.0..=1801.0).contains(&wait), "{wait}");
}

#[tokio::test]
async fn each_round_is_a_new_event_with_its_own_id_and_all_artifacts_of_its_row() {
    let house = House::with(quick_retries()).await;
    let cases = paper(json!([{ "file_name": "a.pdf", "do": { "fail": { "status": 503 } } }]));
    house.publish().await;
    house.arm();
    house.attach(Arc::clone(&cases) as Arc<_>);
    let job = house.submit(&[&["a.pdf", "b.pdf"]]).await;
    house.tried(job).await;
    for round in 2..=3 {
        house.bring_due().await;
        house.schedule().await;
        house
            .until(job, "it was retried", |view| {
                only(view)["attempt_count"] == round
            })
            .await;
    }
    let events: Vec<Value> = sqlx::query_scalar(
        "select payload from postrider.message where topic = 'evidence.failed.requests' order by position",
    )
    .fetch_all(&house.pool)
    .await
    .unwrap();
    assert_eq!(events.len(), 2);
    assert_ne!(events[0]["event_id"], events[1]["event_id"]);
    for event in &events {
        assert_eq!(event["event_type"], "EVIDENCE_ATTACH_RETRY");
        assert_eq!(event["retry_reason"], "AUTOMATED_RETRY");
        assert_eq!(event["schema_version"], 1);
        assert_eq!(event["artifacts"].as_array().unwrap().len(), 2);
        assert!(
            event["artifacts"][0]["s3_key"]
                .as_str()
                .unwrap()
                .starts_with("file://")
        );
    }
    assert_eq!(
        cases
            .calls()
            .iter()
            .filter(|call| call.file_name == "b.pdf")
            .count(),
        1
    );
}

#[tokio::test]
async fn rows_are_put_in_batches_with_a_pause_between_them() {
    let house =
        House::with(json!({ "scheduler": { "batch_size_rows": 2, "sleep_between_batches": 0.2 } }))
            .await;
    house.publish().await;
    house.arm();
    house.attach(paper(json!([{ "do": { "fail": { "status": 503 } } }])));
    let rows: Vec<&[&str]> = vec![&["a.pdf"], &["b.pdf"], &["c.pdf"], &["d.pdf"], &["e.pdf"]];
    let job = house.submit(&rows).await;
    house.tried(job).await;
    house.bring_due().await;
    let started = std::time::Instant::now();
    house.schedule().await;
    assert!(
        started.elapsed() >= Duration::from_millis(400),
        "two full batches, two pauses"
    );
    let put: i64 = house
        .scalar("select count(*) from evidence.file_job_row where retry_round = 1")
        .await;
    assert_eq!(put, 5);
    // Rows of one batch share their transaction.
    let batches: i64 = house
        .scalar(
            "select count(distinct xmin::text) from evidence.file_job_row where retry_round = 1",
        )
        .await;
    assert!(batches >= 1);
}

#[tokio::test]
async fn nothing_is_put_while_the_case_api_is_left_alone() {
    let house = House::new().await;
    house.publish().await;
    house.arm();
    house.attach(paper(json!([{ "do": { "fail": { "status": 503 } } }])));
    let job = house.submit(&[&["a.pdf"]]).await;
    house.tried(job).await;
    house.bring_due().await;
    house
        .execute(
            "insert into postrider.breaker (dependency, process, state, failures, open_until)
             values ('evidence.case_api', gen_random_uuid(), 'open', 20, now() + interval '1 hour')",
        )
        .await;
    house.schedule().await;
    let rounds = async || -> i32 {
        house
            .scalar("select retry_round from evidence.file_job_row")
            .await
    };
    assert_eq!(rounds().await, 0);
    house
        .execute("update postrider.breaker set open_until = now()")
        .await;
    house.schedule().await;
    assert_eq!(rounds().await, 1);
}

#[tokio::test]
async fn a_retry_whose_event_came_to_nothing_is_put_anew_after_a_while() {
    let house = House::new().await;
    house.publish().await;
    house.arm();
    house.attach(paper(
        json!([{ "first_calls": 1, "do": { "fail": { "status": 503 } } }]),
    ));
    let job = house.submit(&[&["a.pdf"]]).await;
    house.tried(job).await;
    house
        .execute(
            "update evidence.file_job_artifact
             set next_retry_at = now(), retry_status = 'RETRY_SCHEDULED', scheduled_at = now() - interval '1 min'",
        )
        .await;
    house.schedule().await;
    assert_eq!(
        only(&house.get(job).await)["attempt_count"],
        1,
        "it may be on its way"
    );
    house
        .execute("update evidence.file_job_artifact set scheduled_at = now() - interval '1 hour'")
        .await;
    house.schedule().await;
    house
        .until(job, "it is attached", |view| view["attached"] == 1)
        .await;
}

#[tokio::test]
async fn two_schedulers_at_once_behave_as_one() {
    let house = House::with(
        json!({ "scheduler": { "batch_size_rows": 3, "sleep_between_batches": 0.01 } }),
    )
    .await;
    house.publish().await;
    house.arm();
    house.attach(paper(json!([{ "do": { "fail": { "status": 503 } } }])));
    let names: Vec<String> = (0..30).map(|n| format!("f{n}.pdf")).collect();
    let rows: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let rows: Vec<&[&str]> = rows.iter().map(<[&str; 1]>::as_slice).collect();
    let job = house.submit(&rows).await;
    house.tried(job).await;
    house.bring_due().await;
    let stop = CancellationToken::new();
    let schedulers: Vec<_> = (0..4).map(|_| house.scheduler()).collect();
    let ticks = schedulers.iter().map(|scheduler| scheduler.tick(&stop));
    for tick in futures_util::future::join_all(ticks).await {
        tick.unwrap();
    }
    within(LONG, "all were put", async || {
        house.schedule().await;
        house
            .scalar::<i64>("select count(*) from evidence.file_job_row where retry_round = 1")
            .await
            == 30
    })
    .await;
}
