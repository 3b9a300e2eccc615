//! Cancel, redrive, listings, events, download.

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use postrider::{
    dead_letter::{Action, DeadLetters, Filter, Order, Total},
    lease::Operator,
};
use postrider_exports::{AT_REST, CHECKS, EXPORT_JOB_INPUT};
use postrider_inspect::doctor::{Doctor, Severity};
use serde_json::{Value, json};
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
    let cursor = async |path: &str| {
        let (_, page) = house.call(Method::GET, path, None).await;
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
        let (status, problem) = house.call(Method::GET, &path, None).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {problem}");
        assert_eq!(problem["code"], "invalid-cursor", "{path}");
    }
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

async fn archive_all(house: &House) -> Total {
    let letters = DeadLetters::new([&EXPORT_JOB_INPUT]).unwrap();
    let order = Order::new(Action::Archive, Filter::default());
    let operator = Operator::new("somebody");
    let total = letters.carry_out(&house.pool, &operator, &order).await;
    total.unwrap()
}

#[tokio::test]
async fn what_was_parked_goes_on_after_the_failed_input_was_archived_and_the_job_never_completes() {
    let house = House::new().await;
    house.execute("create table source (key text, day date, asof text, n integer);
                   insert into source select 'K' || lpad(k::text, 5, '0'), date '2024-02-02', 'CLS', 1 from generate_series(1, 199) k").await;
    let job = house.submit(many(200)).await;
    let alone = json!({ "source": own_source()["source"], "concurrency": 1, "worker": { "poll": { "batch_size": 10 } } });
    let stop = CancellationToken::new();
    let worker = house.work_until(&settings(alone), stop.clone());
    house.stands(&job, "FAILED").await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    house.finalize().await;
    let parked = house
        .count("select count(*) from exports.export_job_input where parked = 'the job is FAILED'")
        .await;
    assert!(parked > 0, "nothing was parked");
    assert_eq!(archive_all(&house).await.changed, 1);
    let view = house.get(&job).await;
    assert_eq!(view["failed"], 1, "an archived input was given up, too");
    let message = view["errorMessage"].as_str().unwrap();
    assert!(
        message.contains("NO_DATA") && message.ends_with("(archived inputs: 1 of 200)"),
        "{message}"
    );

    let (status, view) = house.operate(&job, "redrive").await;
    assert_eq!(
        (status, &view["status"]),
        (StatusCode::OK, &json!("RUNNING"))
    );
    let audited = "select count(*) from postrider.audit where action = 'redrive' and work_table = 'exports.export_job'";
    assert_eq!(house.count(audited).await, 1);
    house.work(&settings(own_source()));
    let view = house.stands(&job, "FAILED").await;
    assert_eq!((&view["done"], &view["failed"]), (&json!(199), &json!(1)));
    let message = view["errorMessage"].as_str().unwrap();
    assert!(message.contains("archived inputs: 1 of 200"), "{message}");

    let (status, problem) = house.operate(&job, "redrive").await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("export-job-not-redrivable"))
    );
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("archived"), "{detail}");
}

#[tokio::test]
async fn an_open_job_of_which_an_input_was_archived_ends_failed() {
    let house = House::new().await;
    let job = house.submit(many(3)).await;
    // Whoever declared it dead could not close the job, and the finalizer did not come by before it was archived.
    house
        .execute(
            "update exports.export_job_input set status = 'DLQ', finished_at = now(), error_code = 'X', cause = 'X'
             where index_key = 'K00001'",
        )
        .await;
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    assert_eq!(archive_all(&house).await.changed, 1);
    house.work(&settings(json!({})));
    let view = within(LONG, "the job is over", async || {
        house.finalize().await;
        let view = house.get(&job).await;
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
        "inputs that were given up are archived and have no file (archived inputs: 1 of 3)"
    );
}

/// What the doctor says about parked inputs.
async fn about_parked(house: &House) -> Vec<String> {
    let doctor = Doctor::new([&EXPORT_JOB_INPUT])
        .checks(CHECKS.iter().copied())
        .at_rest(AT_REST.iter().copied());
    let report = doctor.examine(&house.pool).await;
    let found = report.at_least(Severity::Warning).into_iter();
    found
        .map(|finding| finding.check.clone())
        .filter(|check| check.contains("parked"))
        .collect()
}

#[tokio::test]
async fn inputs_that_are_parked_with_their_closed_job_do_not_worry_the_doctor() {
    let house = House::new().await;
    let job = house.submit(many(3)).await;
    assert_eq!(house.operate(&job, "cancel").await.0, StatusCode::OK);
    let parked = "select count(*) from exports.export_job_input where next_retry_at = 'infinity'";
    assert_eq!(house.count(parked).await, 3);
    assert_eq!(about_parked(&house).await, [""; 0]);
    house
        .execute(
            "update exports.export_job_input set parked = 'wait for Ann' where index_key = 'K00001'",
        )
        .await;
    assert_eq!(about_parked(&house).await, ["I1/parked"]);
}

#[tokio::test]
async fn inputs_that_stay_parked_in_an_open_job_are_found_by_the_doctor() {
    let house = House::new().await;
    house.submit(many(3)).await;
    house
        .execute(
            "update exports.export_job_input set next_retry_at = 'infinity', parked = 'the job is FAILED'
             where index_key = 'K00001'",
        )
        .await;
    assert_eq!(about_parked(&house).await, ["exports/parked-with-its-job"]);
}

/// The only input's state, failed attempts and error.
async fn only_input(house: &House, job: &str) -> (Value, Value, Value, Value) {
    let path = format!("/jobs/{job}/inputs");
    let (_, mut page) = house.call(Method::GET, &path, None).await;
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
async fn an_error_that_is_over_is_not_shown_as_todays() {
    let house = House::new().await;
    house
        .execute("create table source (key text, day date, asof text, n integer)")
        .await;
    let job = house.submit(json!([input("A", 20_240_202, "CLS")])).await;
    let stop = CancellationToken::new();
    let worker = house.work_until(&settings(own_source()), stop.clone());
    house.stands(&job, "FAILED").await;
    stop.cancel();
    worker.await.unwrap().unwrap();
    assert_eq!(house.operate(&job, "redrive").await.0, StatusCode::OK);
    assert_eq!(
        only_input(&house, &job).await,
        (json!("PENDING"), json!(0), json!(null), json!(null))
    );

    // A source that is not there fails an attempt; then it is there.
    house.execute("alter table source rename to away").await;
    let patient = json!({ "source": own_source()["source"], "retry": { "max_attempts": 50, "base_delay_ms": 300 } });
    house.work(&settings(patient));
    within(LONG, "an attempt failed", async || {
        let (status, attempts, code, _) = only_input(&house, &job).await;
        if status == "RETRY_WAIT" && attempts != 0 && code != json!(null) {
            Ok(())
        } else {
            Err((status, attempts, code))
        }
    })
    .await;
    house
        .execute("insert into away values ('A', '2024-02-02', 'CLS', 1); alter table away rename to source")
        .await;
    house.stands(&job, "COMPLETED").await;
    let (status, attempts, code, message) = only_input(&house, &job).await;
    assert_eq!(
        (status, code, message),
        (json!("SUCCEEDED"), json!(null), json!(null))
    );
    assert_ne!(attempts, 0);
}

async fn paths(house: &House) -> Vec<String> {
    sqlx::query_scalar("select s3_path from exports.export_job_input where status = 'SUCCEEDED'")
        .fetch_all(&house.pool)
        .await
        .unwrap()
}
