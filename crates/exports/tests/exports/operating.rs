//! Cancel, redrive, listings, events, download.

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{House, LONG, input, many, own_source, settings, within};

#[tokio::test]
async fn jobs_are_listed_newest_first_by_state_in_pages() {
    let house = House::new().await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(house.submit(many(2)).await);
    }
    house.operate(&jobs[2], "cancel").await;
    let mut seen = Vec::new();
    let mut path = "/jobs?limit=2".to_owned();
    loop {
        let (status, page) = house.call(Method::GET, &path, None).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        let items = page["items"].as_array().unwrap();
        seen.extend(
            items
                .iter()
                .map(|job| job["jobId"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/jobs?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    jobs.reverse();
    assert_eq!(seen, jobs);
    let (_, page) = house
        .call(Method::GET, "/jobs?status=CANCELLED", None)
        .await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!(page["items"][0]["total"], 2);
    let (_, none) = house
        .call(Method::GET, "/jobs?until=2020-01-01T00:00:00Z", None)
        .await;
    assert_eq!(none["items"], json!([]));
    let (status, _) = house.call(Method::GET, "/jobs?status=WRONG", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn dead_inputs_are_listed_with_code_and_message() {
    let house = House::new().await;
    house
        .execute("create table source (key text, day date, asof text, n integer)")
        .await;
    let job = house.submit(json!([input("A", 20_240_202, "CLS")])).await;
    house.work(&settings(own_source()));
    house.stands(&job, "FAILED").await;
    let (_, page) = house
        .call(Method::GET, &format!("/jobs/{job}/inputs?status=DLQ"), None)
        .await;
    let dead = &page["items"][0];
    assert_eq!(
        (
            &dead["indexKey"],
            &dead["status"],
            &dead["errorCode"],
            &dead["attemptCount"],
            &dead["s3Path"]
        ),
        (
            &json!("A"),
            &json!("DLQ"),
            &json!("NO_DATA"),
            &json!(1),
            &json!(null)
        )
    );
    assert!(dead["errorMessage"].as_str().unwrap().contains("no rows"));
}

#[tokio::test]
async fn whoever_watches_a_job_is_told_of_its_progress_and_of_its_end() {
    let house = House::new().await;
    let job = house.submit(many(30)).await;
    let watching = house.send(
        Request::builder()
            .uri(format!("/jobs/{job}/events"))
            .body(Body::empty())
            .unwrap(),
    );
    house.work(&settings(json!({ "concurrency": 1 })));
    // The stream ends by itself when the job does.
    let (status, bytes) = watching.await;
    assert_eq!(status, StatusCode::OK);
    let text = String::from_utf8(bytes).unwrap();
    let last = text.rsplit("event: ").next().unwrap();
    assert!(text.contains("event: progress"), "{text}");
    assert!(last.starts_with("end\ndata: {\"jobId\":"), "{last}");
    assert!(
        last.contains("\"status\":\"COMPLETED\"") && last.contains("\"done\":30"),
        "{last}"
    );
}

#[tokio::test]
async fn a_stream_of_events_does_not_hold_the_stop_back() {
    let house = House::new().await;
    let job = house.submit(many(1)).await;
    let request = Request::builder()
        .uri(format!("/jobs/{job}/events"))
        .body(Body::empty())
        .unwrap();
    let stop = house.stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        stop.cancel();
    });
    let (status, _) = house.send(request).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_file_is_fetched_through_the_api() {
    let house = House::new().await;
    house.work(&settings(json!({})));
    let job = house.submit(json!([input("A", 20_240_202, "CLS")])).await;
    let view = house.stands(&job, "COMPLETED").await;
    let stored =
        std::fs::read(house.file(view["dataContent"][0]["s3Path"].as_str().unwrap())).unwrap();
    let get = |path: String| Request::builder().uri(path).body(Body::empty()).unwrap();
    let (status, fetched) = house
        .send(get(format!("/jobs/{job}/files/A/20240202/CLS")))
        .await;
    assert_eq!((status, fetched), (StatusCode::OK, stored));
    let (status, _) = house
        .send(get(format!("/jobs/{job}/files/B/20240202/CLS")))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn one_input_that_always_fails_among_a_thousand_fails_the_job_and_a_redrive_completes_it() {
    let house = House::new().await;
    house.execute("create table source (key text, day date, asof text, n integer);
                   insert into source select 'K' || lpad(k::text, 5, '0'), date '2024-02-02', 'CLS', 1 from generate_series(0, 999) k where k <> 100").await;
    let job = house.submit(many(1000)).await;
    // One at a time and in order, so that what comes behind the bad one has certainly not begun.
    let alone = json!({ "source": own_source()["source"], "concurrency": 1, "worker": { "poll": { "batch_size": 10 } } });
    let stop = CancellationToken::new();
    let worker = house.work_until(&settings(alone), stop.clone());
    let view = house.stands(&job, "FAILED").await;
    let message = view["errorMessage"].as_str().unwrap();
    assert!(
        message.contains("K00100 20240202 CLS") && message.contains("NO_DATA"),
        "{message}"
    );
    let view = within(LONG, "nothing runs", async || {
        let view = house.get(&job).await;
        if view["running"] == 0 {
            Ok(view)
        } else {
            Err(view["running"].clone())
        }
    })
    .await;
    assert_eq!(view["failed"], 1);
    let done = view["done"].as_i64().unwrap();
    assert!(
        (100..150).contains(&done),
        "fail-fast, and yet {done} are done"
    );
    house.finalize().await;
    assert_eq!(
        house.count("select count(*) from exports.export_job_input where finished_at is null and next_retry_at < 'infinity'").await,
        0,
        "what was not begun is parked"
    );
    assert_eq!(house.get(&job).await["done"], done);
    house
        .execute("insert into source values ('K00100', '2024-02-02', 'CLS', 1)")
        .await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    house.work(&settings(own_source()));
    let before: Vec<String> = paths(&house).await;
    let (status, view) = house.operate(&job, "redrive").await;
    assert_eq!(
        (status, &view["status"], &view["errorMessage"]),
        (StatusCode::OK, &json!("RUNNING"), &json!(null))
    );
    let view = house.stands(&job, "COMPLETED").await;
    assert_eq!(
        (&view["done"], &view["filesGenerated"]),
        (&json!(1000), &json!(1000))
    );
    assert!(
        before
            .iter()
            .all(|path| std::fs::metadata(house.file(path)).is_ok())
    );
    let attempts = house
        .count("select max(attempt_count)::bigint from exports.export_job_input")
        .await;
    assert_eq!(attempts, 0, "fresh attempts");
}

async fn paths(house: &House) -> Vec<String> {
    sqlx::query_scalar("select s3_path from exports.export_job_input where status = 'SUCCEEDED'")
        .fetch_all(&house.pool)
        .await
        .unwrap()
}
