//! Cancel, redrive, listings, events, download.

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use postrider::{
    dead_letter::{Action, DeadLetters, Filter, OperationRequest, Total},
    lease::Operator,
};
use postrider_exports::{CHECKS, EXPORT_JOB_INPUT, PARKED_REASONS};
use postrider_inspect::doctor::{Doctor, Severity};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::{DEADLINE, Fixture, input, inputs, own_source, settings, within};

#[tokio::test]
async fn jobs_are_listed_newest_first_in_pages_filtered_by_status() {
    let fixture = Fixture::new().await;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(fixture.submit(inputs(2)).await);
    }
    fixture.action(&jobs[2], "cancel").await;
    let mut seen = Vec::new();
    let mut path = "/jobs?limit=2".to_owned();
    loop {
        let (status, page) = fixture.call(Method::GET, &path, None).await;
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
    let cursor = async |path: &str| {
        let (_, page) = fixture.call(Method::GET, path, None).await;
        page["next_cursor"].as_str().expect("more").to_owned()
    };
    let (of_all, of_first) = (
        cursor("/jobs?limit=2").await,
        cursor(&format!("/jobs/{}/inputs?limit=1", jobs[0])).await,
    );
    for path in [
        format!("/jobs?status=CANCELLED&cursor={of_all}"),
        format!("/jobs/{}/inputs?cursor={of_first}", jobs[1]),
        format!("/jobs/{}/inputs?status=DLQ&cursor={of_first}", jobs[0]),
    ] {
        let (status, problem) = fixture.call(Method::GET, &path, None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {problem}");
        assert_eq!(problem["code"], "invalid-cursor", "{path}");
    }
    let (_, page) = fixture
        .call(Method::GET, "/jobs?status=CANCELLED", None)
        .await;
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!(page["items"][0]["total"], 2);
    let (_, none) = fixture
        .call(Method::GET, "/jobs?until=2020-01-01T00:00:00Z", None)
        .await;
    assert_eq!(none["items"], json!([]));
    let (status, _) = fixture.call(Method::GET, "/jobs?status=WRONG", None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn dead_inputs_are_listed_with_code_and_message() {
    let fixture = Fixture::new().await;
    fixture
        .execute("create table source (key text, day date, asof text, n integer)")
        .await;
    let job = fixture.submit(json!([input("A", 20_240_202, "CLS")])).await;
    fixture.start_worker(&settings(own_source()));
    fixture.wait_for_status(&job, "FAILED").await;
    let (_, page) = fixture
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
async fn event_stream_reports_progress_and_the_end_of_a_job() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(inputs(30)).await;
    let watching = fixture.send(
        Request::builder()
            .uri(format!("/jobs/{job}/events"))
            .body(Body::empty())
            .unwrap(),
    );
    fixture.start_worker(&settings(json!({ "concurrency": 1 })));
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
async fn event_stream_does_not_delay_a_shutdown() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(inputs(1)).await;
    let request = Request::builder()
        .uri(format!("/jobs/{job}/events"))
        .body(Body::empty())
        .unwrap();
    let stop = fixture.stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        stop.cancel();
    });
    let (status, _) = fixture.send(request).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_file_can_be_downloaded_through_the_api() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({})));
    let job = fixture.submit(json!([input("A", 20_240_202, "CLS")])).await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    let stored =
        std::fs::read(fixture.file(view["dataContent"][0]["s3Path"].as_str().unwrap())).unwrap();
    let get = |path: String| Request::builder().uri(path).body(Body::empty()).unwrap();
    let (status, fetched) = fixture
        .send(get(format!("/jobs/{job}/files/A/20240202/CLS")))
        .await;
    assert_eq!((status, fetched), (StatusCode::OK, stored));
    let (status, _) = fixture
        .send(get(format!("/jobs/{job}/files/B/20240202/CLS")))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn one_failing_input_of_a_thousand_fails_the_job_and_a_redrive_completes_it() {
    let fixture = Fixture::new().await;
    fixture.execute("create table source (key text, day date, asof text, n integer);
                   insert into source select 'K' || lpad(k::text, 5, '0'), date '2024-02-02', 'CLS', 1 from generate_series(0, 999) k where k <> 100").await;
    let job = fixture.submit(inputs(1000)).await;
    // One at a time and in order, so that inputs behind the bad one have certainly not started.
    let alone = json!({ "source": own_source()["source"], "concurrency": 1, "worker": { "poll": { "batch_size": 10 } } });
    let stop = CancellationToken::new();
    let worker = fixture.start_worker_until(&settings(alone), stop.clone());
    let view = fixture.wait_for_status(&job, "FAILED").await;
    let message = view["errorMessage"].as_str().unwrap();
    assert!(
        message.contains("K00100 20240202 CLS") && message.contains("NO_DATA"),
        "{message}"
    );
    let view = within(DEADLINE, "nothing runs", async || {
        let view = fixture.get(&job).await;
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
        "{done} are done although the job fails fast"
    );
    fixture.finalize().await;
    assert_eq!(
        fixture.count("select count(*) from exports.export_job_input where finished_at is null and next_retry_at < 'infinity'").await,
        0,
        "unstarted inputs are parked"
    );
    assert_eq!(fixture.get(&job).await["done"], done);
    fixture
        .execute("insert into source values ('K00100', '2024-02-02', 'CLS', 1)")
        .await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    fixture.start_worker(&settings(own_source()));
    let before: Vec<String> = paths(&fixture).await;
    let (status, view) = fixture.action(&job, "redrive").await;
    assert_eq!(
        (status, &view["status"], &view["errorMessage"]),
        (StatusCode::OK, &json!("RUNNING"), &json!(null))
    );
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    assert_eq!(
        (&view["done"], &view["filesGenerated"]),
        (&json!(1000), &json!(1000))
    );
    assert!(
        before
            .iter()
            .all(|path| std::fs::metadata(fixture.file(path)).is_ok())
    );
    let attempts = fixture
        .count("select max(attempt_count)::bigint from exports.export_job_input")
        .await;
    assert_eq!(attempts, 0, "fresh attempts");
}

async fn archive_all(fixture: &Fixture) -> Total {
    let letters = DeadLetters::new([&EXPORT_JOB_INPUT]).unwrap();
    let order = OperationRequest::new(Action::Archive, Filter::default());
    let operator = Operator::new("operator");
    let total = letters.execute(&fixture.pool, &operator, &order).await;
    total.unwrap()
}

#[tokio::test]
async fn parked_inputs_resume_after_the_failed_one_was_archived_but_the_job_never_completes() {
    let fixture = Fixture::new().await;
    fixture.execute("create table source (key text, day date, asof text, n integer);
                   insert into source select 'K' || lpad(k::text, 5, '0'), date '2024-02-02', 'CLS', 1 from generate_series(1, 199) k").await;
    let job = fixture.submit(inputs(200)).await;
    let alone = json!({ "source": own_source()["source"], "concurrency": 1, "worker": { "poll": { "batch_size": 10 } } });
    let stop = CancellationToken::new();
    let worker = fixture.start_worker_until(&settings(alone), stop.clone());
    fixture.wait_for_status(&job, "FAILED").await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    fixture.finalize().await;
    let parked = fixture
        .count("select count(*) from exports.export_job_input where parked = 'the job is FAILED'")
        .await;
    assert!(parked > 0, "nothing was parked");
    assert_eq!(archive_all(&fixture).await.changed, 1);
    let view = fixture.get(&job).await;
    assert_eq!(view["failed"], 1, "an archived input counts as failed");
    let message = view["errorMessage"].as_str().unwrap();
    assert!(
        message.contains("NO_DATA") && message.ends_with("(archived inputs: 1 of 200)"),
        "{message}"
    );

    let (status, view) = fixture.action(&job, "redrive").await;
    assert_eq!(
        (status, &view["status"]),
        (StatusCode::OK, &json!("RUNNING"))
    );
    let audited = "select count(*) from postrider.audit where action = 'redrive' and work_table = 'exports.export_job'";
    assert_eq!(fixture.count(audited).await, 1);
    fixture.start_worker(&settings(own_source()));
    let view = fixture.wait_for_status(&job, "FAILED").await;
    assert_eq!((&view["done"], &view["failed"]), (&json!(199), &json!(1)));
    let message = view["errorMessage"].as_str().unwrap();
    assert!(message.contains("archived inputs: 1 of 200"), "{message}");

    let (status, problem) = fixture.action(&job, "redrive").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("export-job-not-redrivable"))
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("archived"), "{detail}");
}

#[tokio::test]
async fn open_job_with_an_archived_input_ends_failed() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(inputs(3)).await;
    // The worker that marked it dead couldn't close the job, and it was archived before the finalizer ran.
    fixture
        .execute(
            "update exports.export_job_input set status = 'DLQ', finished_at = now(), error_code = 'X', cause = 'X'
             where index_key = 'K00001'",
        )
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    assert_eq!(archive_all(&fixture).await.changed, 1);
    fixture.start_worker(&settings(json!({})));
    let view = within(DEADLINE, "the job is closed", async || {
        fixture.finalize().await;
        let view = fixture.get(&job).await;
        if view["done"] == 2 && view["status"] != "RUNNING" {
            Ok(view)
        } else {
            Err(view)
        }
    })
    .await;
    assert_eq!(view["status"], "FAILED");
    assert_eq!(
        view["errorMessage"],
        "dead inputs were archived without a file (archived inputs: 1 of 3)"
    );
}

/// The doctor's findings about parked inputs.
async fn parked_findings(fixture: &Fixture) -> Vec<String> {
    let doctor = Doctor::new([&EXPORT_JOB_INPUT])
        .checks(CHECKS.iter().copied())
        .parked_reasons(PARKED_REASONS.iter().copied());
    let report = doctor.examine(&fixture.pool).await;
    let found = report.at_least(Severity::Warning).into_iter();
    found
        .map(|finding| finding.check.clone())
        .filter(|check| check.contains("parked"))
        .collect()
}

#[tokio::test]
async fn doctor_accepts_inputs_parked_with_their_closed_job() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(inputs(3)).await;
    assert_eq!(fixture.action(&job, "cancel").await.0, StatusCode::OK);
    let parked = "select count(*) from exports.export_job_input where next_retry_at = 'infinity'";
    assert_eq!(fixture.count(parked).await, 3);
    assert_eq!(parked_findings(&fixture).await, [""; 0]);
    fixture
        .execute(
            "update exports.export_job_input set parked = 'wait for Ann' where index_key = 'K00001'",
        )
        .await;
    assert_eq!(parked_findings(&fixture).await, ["I1/parked"]);
}

#[tokio::test]
async fn doctor_reports_parked_inputs_of_an_open_job() {
    let fixture = Fixture::new().await;
    fixture.submit(inputs(3)).await;
    fixture
        .execute(
            "update exports.export_job_input set next_retry_at = 'infinity', parked = 'the job is FAILED'
             where index_key = 'K00001'",
        )
        .await;
    assert_eq!(
        parked_findings(&fixture).await,
        ["exports/parked-with-its-job"]
    );
}

/// The only input's status, failed attempts and error.
async fn only_input(fixture: &Fixture, job: &str) -> (Value, Value, Value, Value) {
    let path = format!("/jobs/{job}/inputs");
    let (_, mut page) = fixture.call(Method::GET, &path, None).await;
    let mut input = page["items"][0].take();
    let mut field = |name: &str| input[name].take();
    (
        field("status"),
        field("attemptCount"),
        field("errorCode"),
        field("errorMessage"),
    )
}

#[tokio::test]
async fn resolved_errors_are_no_longer_shown() {
    let fixture = Fixture::new().await;
    fixture
        .execute("create table source (key text, day date, asof text, n integer)")
        .await;
    let job = fixture.submit(json!([input("A", 20_240_202, "CLS")])).await;
    let stop = CancellationToken::new();
    let worker = fixture.start_worker_until(&settings(own_source()), stop.clone());
    fixture.wait_for_status(&job, "FAILED").await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    assert_eq!(fixture.action(&job, "redrive").await.0, StatusCode::OK);
    assert_eq!(
        only_input(&fixture, &job).await,
        (json!("PENDING"), json!(0), json!(null), json!(null))
    );

    // A missing source fails an attempt, then it exists.
    fixture.execute("alter table source rename to away").await;
    let retrying = json!({ "source": own_source()["source"], "retry": { "max_attempts": 50, "base_delay_ms": 300 } });
    fixture.start_worker(&settings(retrying));
    within(DEADLINE, "an attempt failed", async || {
        let (status, attempts, code, _) = only_input(&fixture, &job).await;
        if status == "RETRY_WAIT" && attempts != 0 && code != json!(null) {
            Ok(())
        } else {
            Err((status, attempts, code))
        }
    })
    .await;
    fixture
        .execute("insert into away values ('A', '2024-02-02', 'CLS', 1); alter table away rename to source")
        .await;
    fixture.wait_for_status(&job, "COMPLETED").await;
    let (status, attempts, code, message) = only_input(&fixture, &job).await;
    assert_eq!(
        (status, code, message),
        (json!("SUCCEEDED"), json!(null), json!(null))
    );
    assert_ne!(attempts, 0);
}

async fn paths(fixture: &Fixture) -> Vec<String> {
    sqlx::query_scalar("select s3_path from exports.export_job_input where status = 'SUCCEEDED'")
        .fetch_all(&fixture.pool)
        .await
        .unwrap()
}
