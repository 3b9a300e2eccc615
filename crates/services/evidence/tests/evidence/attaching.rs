//! From a submitted job to attached files.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::json;
use uuid::Uuid;

use crate::support::{
    Fixture, behind_http, fast_retries, http_cases, only_artifact, simulated_cases,
};

#[tokio::test]
async fn files_of_an_archive_are_attached_once_under_their_names() {
    let fixture = Fixture::new().await;
    let cases = simulated_cases(json!([]));
    fixture.run(behind_http(&cases).await).await;
    let job = fixture
        .submit(&[&["a.pdf", "sub/ü b.png"], &["c.txt"]])
        .await;
    let view = fixture
        .wait_until(job, "it is closed", |view| view["status"] == "COMPLETED")
        .await;
    assert_eq!(
        (&view["total"], &view["attached"], &view["failed"]),
        (&json!(3), &json!(3), &json!(0))
    );
    let attached = cases.attached();
    let mut names: Vec<&str> = attached.values().map(|e| e.file_name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a.pdf", "c.txt", "sub/ü b.png"]);
    assert_eq!(cases.calls().len(), 3);
    let row = &view["rows"][0];
    assert_eq!(row["evidence_status"], "COMPLETED");
    assert!(row["evidence_completed_at"].is_string());
    let artifact = &row["artifacts"][0];
    assert_eq!(artifact["attachment_status"], "ATTACHED");
    assert_eq!(artifact["retry_status"], "PENDING");
    assert_eq!(artifact["attempt_count"], 1);
    assert_eq!(artifact["file_type"], "application/pdf");
    assert_eq!(artifact["file_size_bytes"], "content of a.pdf".len());
    let left: i64 = fixture
        .scalar("select count(*) from evidence.attach_task")
        .await;
    assert_eq!(left, 0);
}

#[tokio::test]
async fn stored_objects_are_attached_by_key_or_address() {
    let fixture = Fixture::new().await;
    let cases = simulated_cases(json!([]));
    fixture.run(behind_http(&cases).await).await;
    std::fs::write(fixture.dir.path().join("one.pdf"), "one").unwrap();
    std::fs::write(fixture.dir.path().join("two.pdf"), vec![7; 5 << 20]).unwrap();
    let address = fixture.store.url(&postrider_blob::Key::from("two.pdf"));
    let case = Uuid::from_u128(7);
    let (status, answer) = fixture
        .post_json(
            &json!({ "merchant_id": "m-1", "rows": [{ "case_id": case, "reference": "R", "files": [
                { "file_name": "one.pdf", "s3_key": "one.pdf" },
                { "file_name": "two.pdf", "s3_key": address, "file_type": "application/x-two" },
            ]}]}),
        )
        .await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    assert_eq!(
        (&answer["rows"], &answer["artifacts"]),
        (&json!(1), &json!(2))
    );
    let job = answer["file_job_id"].as_str().unwrap().parse().unwrap();
    let view = fixture
        .wait_until(job, "it is closed", |view| view["status"] == "COMPLETED")
        .await;
    assert_eq!(view["attached"], 2, "{view}");
    assert_eq!(view["rows"][0]["artifacts"][1]["s3_key"], "two.pdf");
    assert_eq!(cases.attached().len(), 2);
}

#[tokio::test]
async fn invalid_json_is_rejected_with_its_field_and_nothing_is_stored() {
    let fixture = Fixture::new().await;
    let case = Uuid::from_u128(7);
    let file = json!({ "file_name": "a", "s3_key": "a" });
    let job = |rows| json!({ "merchant_id": "m-1", "rows": rows });
    let outside = json!({ "file_name": "a", "s3_key": "s3://elsewhere/a" });
    for name in ["../a", "a/../b", "..", "/a", "a/", "c:a", "a\\b"] {
        let file = json!({ "file_name": name, "s3_key": "a" });
        let body = job(json!([{ "case_id": case, "files": [file] }]));
        let (status, problem) = fixture.post_json(&body).await;
        assert_eq!(status, 422, "{name}: {problem}");
        assert_eq!(
            problem["errors"][0]["field"], "/rows/0/files/0/file_name",
            "{name}"
        );
    }
    for (body, field) in [
        (job(json!([])), "/rows"),
        (
            job(json!([{ "case_id": case, "files": [] }])),
            "/rows/0/files",
        ),
        (
            job(json!([{ "case_id": "x", "files": [file] }])),
            "/rows/0/case_id",
        ),
        (
            job(json!([{ "case_id": case, "files": [file, file] }])),
            "/rows/0/files/1/file_name",
        ),
        (
            job(json!([{ "case_id": case, "files": [outside] }])),
            "/rows/0/files/0/s3_key",
        ),
        (
            json!({ "merchant_id": " ", "rows": [{ "case_id": case, "files": [file] }] }),
            "/merchant_id",
        ),
        (
            json!({ "merchant_id": "m", "rows": [{ "case_id": case, "files": [file], "file": 1 }] }),
            "/rows/0/file",
        ),
    ] {
        let (status, problem) = fixture.post_json(&body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
    let jobs: i64 = fixture
        .scalar("select count(*) from evidence.file_job")
        .await;
    let events: i64 = fixture
        .scalar("select count(*) from postrider.outbox")
        .await;
    assert_eq!((jobs, events), (0, 0));
}

#[tokio::test]
async fn corrupted_or_missing_file_fails_permanently_and_reaches_no_case() {
    let fixture = Fixture::new().await;
    let cases = simulated_cases(json!([]));
    let job = fixture
        .submit(&[
            &["changed.pdf"],
            &["shorter.pdf"],
            &["gone.pdf"],
            &["whole.pdf"],
        ])
        .await;
    for path in fixture.stored_files() {
        let name = path.to_string_lossy().into_owned();
        let content = std::fs::read(&path).unwrap();
        if name.contains("changed") {
            std::fs::write(&path, vec![b'x'; content.len()]).unwrap();
        } else if name.contains("shorter") {
            std::fs::write(&path, &content[1..]).unwrap();
        } else if name.contains("gone") {
            std::fs::remove_file(&path).unwrap();
        }
    }
    fixture.run(behind_http(&cases).await).await;
    let view = fixture
        .wait_until(job, "it is closed", |view| view["status"] == "COMPLETED")
        .await;
    assert_eq!(
        view["errors"],
        json!({ "CORRUPTED_FILE": 2, "S3_NOT_FOUND": 1 })
    );
    assert_eq!((cases.attached().len(), cases.calls().len()), (1, 1));
    for row in view["rows"].as_array().unwrap().iter().take(3) {
        assert_eq!(
            row["artifacts"][0]["retry_status"], "PERMANENT_FAILED",
            "{row}"
        );
        assert_eq!(row["artifacts"][0]["attempt_count"], 1);
    }
}

#[tokio::test]
async fn every_response_of_the_case_api_maps_to_its_code() {
    let fixture = Fixture::new().await;
    let fates = [401, 403, 404, 408, 413, 415, 422, 429, 500, 503];
    let mut rules: Vec<serde_json::Value> = fates
        .iter()
        .map(|status| json!({ "file_name": format!("s{status}."), "do": { "fail": { "status": status } } }))
        .collect();
    rules.push(json!({ "file_name": "slow", "do": { "stall": { "for": 30 } } }));
    rules.push(json!({ "file_name": "hang", "do": "hang_up" }));
    let cases = simulated_cases(json!(rules));
    let mut files: Vec<String> = fates
        .iter()
        .map(|status| format!("s{status}.pdf"))
        .collect();
    files.extend(["slow.pdf".to_owned(), "hang.pdf".to_owned()]);
    let rows: Vec<Vec<&str>> = files.iter().map(|name| vec![name.as_str()]).collect();
    let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(behind_http(&cases).await);
    let job = fixture.submit(&rows).await;
    let view = fixture.wait_until_tried(job).await;
    let codes: Vec<(&str, &str, bool)> = view["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let a = &row["artifacts"][0];
            (
                a["file_name"].as_str().unwrap(),
                a["attachment_error_code"].as_str().unwrap(),
                a["is_retryable"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        codes,
        [
            ("s401.pdf", "401", false),
            ("s403.pdf", "403", false),
            ("s404.pdf", "CASE_NOT_FOUND", false),
            ("s408.pdf", "ATTACHMENT_API_TIMEOUT", true),
            ("s413.pdf", "INVALID_FORMAT", false),
            ("s415.pdf", "INVALID_FORMAT", false),
            ("s422.pdf", "INVALID_FORMAT", false),
            ("s429.pdf", "503", true),
            ("s500.pdf", "500", true),
            ("s503.pdf", "503", true),
            ("slow.pdf", "ATTACHMENT_API_TIMEOUT", true),
            ("hang.pdf", "NETWORK_TIMEOUT", true),
        ]
    );
}

#[tokio::test]
async fn open_breaker_spends_no_attempts_on_an_unavailable_api() {
    let fixture =
        Fixture::with(json!({ "breaker": { "threshold": 3, "open_for": 0.2 }, "concurrency": 1 }))
            .await;
    // Nothing listens on this port.
    let dead = http_cases("http://127.0.0.1:9", Duration::from_secs(1));
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(dead);
    let names: Vec<String> = (0..12).map(|n| format!("f{n}.pdf")).collect();
    let rows: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let rows: Vec<&[&str]> = rows.iter().map(<[&str; 1]>::as_slice).collect();
    let job = fixture.submit(&rows).await;
    fixture
        .wait_until(job, "the breaker has opened", |view| {
            view["failed"].as_i64() >= Some(3)
        })
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let failed = fixture.get(job).await["failed"].as_i64().unwrap();
    assert!(
        failed < 9,
        "{failed} attempts were spent on an unavailable API"
    );
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_rows_in_pages() {
    let fixture = Fixture::new().await;
    let first = fixture.submit(&[&["a.pdf"]]).await;
    let second = fixture.submit(&[&["a.pdf"], &["b.pdf"], &["c.pdf"]]).await;
    let get = async |path: String| {
        fixture
            .call(axum::http::Method::GET, &path, None, Vec::new())
            .await
    };
    let (_, page) = get("/file-jobs?limit=1&merchant_id=m-1".to_owned()).await;
    assert_eq!(page["items"][0]["file_job_id"], json!(second));
    let cursor = page["next_cursor"].as_str().unwrap();
    let (_, page) = get(format!(
        "/file-jobs?limit=1&merchant_id=m-1&cursor={cursor}"
    ))
    .await;
    assert_eq!(page["items"][0]["file_job_id"], json!(first));
    let (status, problem) = get(format!("/file-jobs?limit=1&cursor={cursor}")).await;
    assert_eq!(
        status,
        StatusCode::BAD_REQUEST,
        "of another filter: {problem}"
    );
    let (_, page) = get("/file-jobs?status=COMPLETED".to_owned()).await;
    assert_eq!(page["items"], json!([]));
    let (_, view) = get(format!("/file-jobs/{second}?limit=2")).await;
    assert_eq!(view["rows"].as_array().unwrap().len(), 2);
    let cursor = view["next_cursor"].as_str().unwrap();
    let (_, view) = get(format!("/file-jobs/{second}?limit=2&cursor={cursor}")).await;
    assert_eq!(view["rows"][0]["row_number"], 3);
    let (status, problem) = get(format!("/file-jobs/{first}?cursor={cursor}")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "of another job: {problem}");
    assert_eq!(
        get(format!("/file-jobs/{}", Uuid::nil())).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn manual_retry_waits_for_the_backoff_unless_early() {
    let fixture = Fixture::new().await;
    let cases = simulated_cases(json!([{ "first_calls": 1, "do": { "fail": { "status": 503 } } }]));
    fixture.publish().await;
    fixture.consume_events();
    fixture.start_worker(Arc::clone(&cases) as Arc<_>);
    fixture.notify();
    let job = fixture.submit(&[&["a.pdf"]]).await;
    fixture.wait_until_tried(job).await;
    let (status, answer) = fixture.retry(job, "").await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    assert_eq!(
        (&answer["scheduled_rows"], &answer["waiting"]),
        (&json!(0), &json!(1))
    );
    assert!(answer["next_retry_at"].is_string());
    let (_, answer) = fixture.retry(job, "?early=true").await;
    assert_eq!(
        (&answer["scheduled_rows"], &answer["scheduled_artifacts"]),
        (&json!(1), &json!(1))
    );
    let view = fixture
        .wait_until(job, "it is closed", |view| view["status"] == "COMPLETED")
        .await;
    assert_eq!(only_artifact(&view)["retry_status"], "RETRY_SUCCESS");
    assert_eq!(fixture.retry(job, "").await.0, StatusCode::CONFLICT);
    assert_eq!(
        fixture.retry(Uuid::nil(), "").await.0,
        StatusCode::NOT_FOUND
    );
    let audited: i64 = fixture
        .scalar("select count(*) from postrider.audit where action = 'retry_early'")
        .await;
    assert_eq!(audited, 1);
}

#[tokio::test]
async fn orphaned_files_of_an_upload_are_deleted() {
    use postrider_evidence::cleaning::sweep_once;
    let fixture = Fixture::with(fast_retries()).await;
    fixture.submit(&[&["a.pdf"]]).await;
    let orphan = format!("evidence/{}/000000-x.pdf", Uuid::now_v7());
    let key = postrider_blob::Key::from(orphan.as_str());
    fixture.store.put(&key, "x".into()).await.unwrap();
    assert_eq!(fixture.stored_files().len(), 2);
    let kept = sweep_once(&fixture.pool, &fixture.store, Duration::from_secs(3600))
        .await
        .unwrap();
    assert_eq!(kept, 0, "it may belong to an upload in progress");
    tokio::time::sleep(Duration::from_millis(20)).await;
    let gone = sweep_once(&fixture.pool, &fixture.store, Duration::ZERO)
        .await
        .unwrap();
    assert_eq!((gone, fixture.stored_files().len()), (1, 1));
}

#[tokio::test]
async fn attempts_are_pruned_only_long_after_their_job_closed() {
    use postrider_evidence::cleaning::prune_once;
    let day = Duration::from_secs(24 * 3600);
    let fixture = Fixture::with(fast_retries()).await;
    let cases =
        simulated_cases(json!([{ "file_name": "never", "do": { "fail": { "status": 503 } } }]));
    fixture.consume_events();
    fixture.publish().await;
    fixture.start_worker(behind_http(&cases).await);
    fixture.notify();
    let closed = fixture.submit(&[&["a.pdf"]]).await;
    let lately = fixture.submit(&[&["b.pdf"]]).await;
    let open = fixture.submit(&[&["never.pdf"]]).await;
    for job in [closed, lately] {
        fixture
            .wait_until(job, "it is closed", |view| view["status"] == "COMPLETED")
            .await;
    }
    fixture.wait_until_tried(open).await;
    // All attempts are old; one job has been closed for long, one for a week, one is open.
    fixture
        .execute("update evidence.attach_attempt set at = now() - interval '40 days'")
        .await;
    for (job, days) in [(closed, 31), (lately, 7)] {
        sqlx::query("update evidence.file_job set closed_at = now() - make_interval(days => $2) where id = $1")
            .bind(job)
            .bind(days)
            .execute(&fixture.pool)
            .await
            .unwrap();
    }
    let lines = "select count(*) from evidence.attach_attempt";
    assert_eq!(fixture.scalar::<i64>(lines).await, 3);
    assert_eq!(prune_once(&fixture.pool, 32 * day).await.unwrap(), 0);
    assert_eq!(prune_once(&fixture.pool, 30 * day).await.unwrap(), 1);
    // The minimum retention keeps what the doctor checks.
    assert_eq!(prune_once(&fixture.pool, day).await.unwrap(), 0);
    assert_eq!(fixture.scalar::<i64>(lines).await, 2);
}
