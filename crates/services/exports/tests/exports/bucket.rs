//! On a real S3 server: the same, and an outage.

use std::time::Duration;

use axum::http::Method;
use postrider_testkit::S3Server;
use serde_json::json;

use crate::support::{House, LONG, many, settings, within};

#[tokio::test]
async fn files_go_to_a_bucket_and_are_whole() {
    let server = S3Server::start().await;
    let house = House::on_s3(&server).await;
    house.work(&settings(json!({})));
    let job = house.submit(many(50)).await;
    let view = house.stands(&job, "COMPLETED").await;
    let files = view["dataContent"].as_array().unwrap();
    assert_eq!(files.len(), 50);
    for file in files {
        let path = file["s3Path"].as_str().unwrap();
        let key = path.strip_prefix("s3://exports/").unwrap();
        let text = std::fs::read_to_string(server.bucket().join(key)).unwrap();
        assert_eq!(text.lines().count(), 21);
    }
    let again = house.submit(many(50)).await;
    assert_eq!(house.stands(&again, "COMPLETED").await["filesReused"], 50);
    assert_eq!(server.unfinished(), Vec::<String>::new());
}

/// The outage lasts a minute with POSTRIDER_OUTAGE_SECONDS=60, else some seconds.
fn outage() -> Duration {
    let seconds = std::env::var("POSTRIDER_OUTAGE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(6))
}

#[tokio::test]
async fn a_store_that_goes_away_delays_and_loses_nothing_and_spends_no_more_attempts_than_the_breaker_allows()
 {
    let mut server = S3Server::start().await;
    let house = House::on_s3(&server).await;
    let (threshold, open_for) = (5, Duration::from_secs(1));
    house.work(&settings(json!({
        "retry": { "max_attempts": 3, "base_delay_ms": 20 }, "breaker": { "threshold": threshold, "open_for": "1s" }
    })));
    let job = house.submit(many(600)).await;
    within(LONG, "some are done", async || {
        house.get(&job).await["done"].as_i64().unwrap() >= 20
    })
    .await;
    server.stop().await;
    tokio::time::sleep(outage()).await;
    let during = house.get(&job).await;
    let done = &during["dataContent"][0]["indexKey"].as_str().unwrap();
    let path = format!("/jobs/{job}/files/{done}/20240202/CLS");
    let (status, problem) = house.call(Method::GET, &path, None).await;
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
    server.come_back().await;
    let view = house.stands(&job, "COMPLETED").await;
    assert_eq!((&view["done"], &view["failed"]), (&json!(600), &json!(0)));
    let spent = house
        .count("select count(*) from postrider.attempt where outcome = 'retry'")
        .await;
    // Those that opened it, and one probe after each pause.
    let probes = (outage().as_secs_f64() / open_for.as_secs_f64()).ceil() as i64 + 2;
    assert!(spent <= threshold + probes, "{spent} attempts were spent");
    let probed = house
        .count("select count(*) from exports.export_job_input where attempt_count >= 3")
        .await;
    assert_eq!(
        probed, 0,
        "the last attempt is kept for when the outage is over"
    );
}
