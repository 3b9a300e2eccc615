//! Files on a real S3 server, and an outage of it.

use std::time::Duration;

use axum::http::Method;
use postrider_testkit::S3Server;
use serde_json::json;

use crate::support::{DEADLINE, Fixture, inputs, settings, within};

#[tokio::test]
async fn files_are_written_to_a_bucket_completely() {
    let server = S3Server::start().await;
    let fixture = Fixture::with_s3(&server).await;
    fixture.start_worker(&settings(json!({})));
    let job = fixture.submit(inputs(50)).await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    let files = view["dataContent"].as_array().unwrap();
    assert_eq!(files.len(), 50);
    for file in files {
        let path = file["s3Path"].as_str().unwrap();
        let key = path.strip_prefix("s3://exports/").unwrap();
        let text = std::fs::read_to_string(server.bucket().join(key)).unwrap();
        assert_eq!(text.lines().count(), 21);
    }
    let again = fixture.submit(inputs(50)).await;
    assert_eq!(
        fixture.wait_for_status(&again, "COMPLETED").await["filesReused"],
        50
    );
    assert_eq!(server.unfinished(), Vec::<String>::new());
}

/// Duration of the outage: POSTRIDER_OUTAGE_SECONDS, or a few seconds.
fn outage() -> Duration {
    let seconds = std::env::var("POSTRIDER_OUTAGE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(6))
}

#[tokio::test]
async fn store_outage_loses_nothing_and_spends_only_the_attempts_that_open_the_breaker() {
    let mut server = S3Server::start().await;
    let fixture = Fixture::with_s3(&server).await;
    let (threshold, open_for) = (5, Duration::from_secs(1));
    fixture.start_worker(&settings(json!({
        "retry": { "max_attempts": 3, "base_delay_ms": 20 }, "breaker": { "threshold": threshold, "open_for": "1s" }
    })));
    let job = fixture.submit(inputs(600)).await;
    within(DEADLINE, "some are done", async || {
        fixture.get(&job).await["done"].as_i64().unwrap() >= 20
    })
    .await;
    server.stop().await;
    tokio::time::sleep(outage()).await;
    let during = fixture.get(&job).await;
    let done = &during["dataContent"][0]["indexKey"].as_str().unwrap();
    let path = format!("/jobs/{job}/files/{done}/20240202/CLS");
    let (status, problem) = fixture.call(Method::GET, &path, None).await;
    assert_eq!(
        (status.as_u16(), &problem["code"]),
        (503, &json!("export-store-unavailable"))
    );
    assert_eq!(
        (&during["status"], &during["failed"]),
        (&json!("RUNNING"), &json!(0)),
        "{during}"
    );
    assert!(during["done"].as_i64().unwrap() < 600);
    server.restart().await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    assert_eq!((&view["done"], &view["failed"]), (&json!(600), &json!(0)));
    let spent = fixture
        .count("select count(*) from postrider.attempt where outcome = 'retry'")
        .await;
    // The failures that opened the breaker, and one probe per open interval.
    let probes = (outage().as_secs_f64() / open_for.as_secs_f64()).ceil() as i64 + 2;
    assert!(spent <= threshold + probes, "{spent} attempts were spent");
    let probed = fixture
        .count("select count(*) from exports.export_job_input where attempt_count >= 3")
        .await;
    assert_eq!(probed, 0, "the last attempt is kept for after the outage");
}
