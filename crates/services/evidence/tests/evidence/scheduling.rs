//! Scheduling of retries.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{DEADLINE, Fixture, fast_retries, only_artifact, simulated_cases, within};

#[tokio::test]
async fn next_retry_follows_the_backoff_within_its_jitter() {
    let fixture = Fixture::new().await;
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(simulated_cases(
        json!([{ "do": { "fail": { "status": 503 } } }]),
    ));
    let names: Vec<String> = (0..40).map(|n| format!("f{n}.pdf")).collect();
    let rows: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let rows: Vec<&[&str]> = rows.iter().map(<[&str; 1]>::as_slice).collect();
    let job = fixture.submit(&rows).await;
    fixture.wait_until_tried(job).await;
    let waits = async || -> (f64, f64) {
        sqlx::query_as(
            "select min(extract(epoch from next_retry_at - updated_at))::float8,
                    max(extract(epoch from next_retry_at - updated_at))::float8
             from evidence.file_job_artifact",
        )
        .fetch_one(&fixture.pool)
        .await
        .unwrap()
    };
    let (least, most) = waits().await;
    assert!(
        least >= 240.0 && most <= 360.1 && most - least > 5.0,
        "{least}..{most}"
    );
    fixture.make_due().await;
    fixture.schedule().await;
    fixture
        .wait_until(job, "all were retried", |view| {
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
async fn longer_retry_after_of_the_case_api_is_respected() {
    let fixture = Fixture::with(fast_retries()).await;
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(simulated_cases(
        json!([{ "do": { "fail": { "status": 429, "retry_after": 1800 } } }]),
    ));
    let job = fixture.submit(&[&["a.pdf"]]).await;
    fixture.wait_until_tried(job).await;
    let wait: f64 = fixture
        .scalar("select extract(epoch from next_retry_at - updated_at)::float8 from evidence.file_job_artifact")
        .await;
    assert!((1799.0..=1801.0).contains(&wait), "{wait}");
}

#[tokio::test]
async fn each_retry_round_is_a_new_event_with_all_artifacts_of_its_row() {
    let fixture = Fixture::with(fast_retries()).await;
    let cases =
        simulated_cases(json!([{ "file_name": "a.pdf", "do": { "fail": { "status": 503 } } }]));
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(Arc::clone(&cases) as Arc<_>);
    let job = fixture.submit(&[&["a.pdf", "b.pdf"]]).await;
    fixture.wait_until_tried(job).await;
    for round in 2..=3 {
        fixture.make_due().await;
        fixture.schedule().await;
        fixture
            .wait_until(job, "it was retried", |view| {
                only_artifact(view)["attempt_count"] == round
            })
            .await;
    }
    let events: Vec<Value> = sqlx::query_scalar(
        "select payload from postrider.message where topic = 'evidence.failed.requests' order by position",
    )
    .fetch_all(&fixture.pool)
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
async fn retries_are_scheduled_in_batches_with_a_delay_in_between() {
    let fixture = Fixture::with(
        json!({ "scheduler": { "batch_size_rows": 2, "sleep_between_batches": 0.2 } }),
    )
    .await;
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(simulated_cases(
        json!([{ "do": { "fail": { "status": 503 } } }]),
    ));
    let rows: Vec<&[&str]> = vec![&["a.pdf"], &["b.pdf"], &["c.pdf"], &["d.pdf"], &["e.pdf"]];
    let job = fixture.submit(&rows).await;
    fixture.wait_until_tried(job).await;
    fixture.make_due().await;
    let started = std::time::Instant::now();
    fixture.schedule().await;
    assert!(
        started.elapsed() >= Duration::from_millis(400),
        "two full batches, two delays"
    );
    let scheduled: i64 = fixture
        .scalar("select count(*) from evidence.file_job_row where retry_round = 1")
        .await;
    assert_eq!(scheduled, 5);
    // Rows of one batch share their transaction.
    let batches: i64 = fixture
        .scalar(
            "select count(distinct xmin::text) from evidence.file_job_row where retry_round = 1",
        )
        .await;
    assert!(batches >= 1);
}

#[tokio::test]
async fn nothing_is_scheduled_while_the_breaker_is_open() {
    let fixture = Fixture::new().await;
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(simulated_cases(
        json!([{ "do": { "fail": { "status": 503 } } }]),
    ));
    let job = fixture.submit(&[&["a.pdf"]]).await;
    fixture.wait_until_tried(job).await;
    fixture.make_due().await;
    fixture
        .execute(
            "insert into postrider.breaker (dependency, process, state, failures, open_until)
             values ('evidence.case_api', gen_random_uuid(), 'open', 20, now() + interval '1 hour')",
        )
        .await;
    fixture.schedule().await;
    let rounds = async || -> i32 {
        fixture
            .scalar("select retry_round from evidence.file_job_row")
            .await
    };
    assert_eq!(rounds().await, 0);
    fixture
        .execute("update postrider.breaker set open_until = now()")
        .await;
    fixture.schedule().await;
    assert_eq!(rounds().await, 1);
}

#[tokio::test]
async fn retry_whose_event_was_lost_is_scheduled_again() {
    let fixture = Fixture::new().await;
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(simulated_cases(
        json!([{ "first_calls": 1, "do": { "fail": { "status": 503 } } }]),
    ));
    let job = fixture.submit(&[&["a.pdf"]]).await;
    fixture.wait_until_tried(job).await;
    fixture
        .execute(
            "update evidence.file_job_artifact
             set next_retry_at = now(), retry_status = 'RETRY_SCHEDULED', scheduled_at = now() - interval '1 min'",
        )
        .await;
    fixture.schedule().await;
    assert_eq!(
        only_artifact(&fixture.get(job).await)["attempt_count"],
        1,
        "its event may be in transit"
    );
    fixture
        .execute("update evidence.file_job_artifact set scheduled_at = now() - interval '1 hour'")
        .await;
    fixture.schedule().await;
    fixture
        .wait_until(job, "it is attached", |view| view["attached"] == 1)
        .await;
}

#[tokio::test]
async fn concurrent_schedulers_schedule_each_row_once() {
    let fixture = Fixture::with(
        json!({ "scheduler": { "batch_size_rows": 3, "sleep_between_batches": 0.01 } }),
    )
    .await;
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(simulated_cases(
        json!([{ "do": { "fail": { "status": 503 } } }]),
    ));
    let names: Vec<String> = (0..30).map(|n| format!("f{n}.pdf")).collect();
    let rows: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let rows: Vec<&[&str]> = rows.iter().map(<[&str; 1]>::as_slice).collect();
    let job = fixture.submit(&rows).await;
    fixture.wait_until_tried(job).await;
    fixture.make_due().await;
    let stop = CancellationToken::new();
    let schedulers: Vec<_> = (0..4).map(|_| fixture.scheduler()).collect();
    let ticks = schedulers.iter().map(|scheduler| scheduler.tick(&stop));
    for tick in futures_util::future::join_all(ticks).await {
        tick.unwrap();
    }
    within(DEADLINE, "all rows are scheduled", async || {
        fixture.schedule().await;
        fixture
            .scalar::<i64>("select count(*) from evidence.file_job_row where retry_round = 1")
            .await
            == 30
    })
    .await;
}
