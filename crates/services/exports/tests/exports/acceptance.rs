//! Accepting jobs: valid and invalid requests, idempotency keys.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Fixture, input, inputs, settings};

#[tokio::test]
async fn completed_job_matches_the_documented_contract() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(
        json!({ "source": { "query": "select * from exports.sample_constituents($1, $2, $3)" } }),
    ));
    let older = fixture
        .submit(json!([input("DEF", 20_230_506, "ADJCLS")]))
        .await;
    let reused =
        fixture.wait_for_status(&older, "COMPLETED").await["dataContent"][0]["s3Path"].clone();
    let job = fixture
        .submit(json!([
            input("ABC", 20_240_202, "CLS"),
            input("DEF", 20_230_506, "ADJCLS")
        ]))
        .await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    let made = view["dataContent"][0]["s3Path"]
        .as_str()
        .unwrap()
        .to_owned();
    let expected = json!({
        "jobId": job, "status": "COMPLETED", "total": 2, "pending": 0, "retrying": 0, "running": 0, "done": 2, "failed": 0,
        "filesGenerated": 1, "filesReused": 1, "errorMessage": null,
        "dataContent": [
            { "indexKey": "ABC", "effectiveDate": 20240202, "asofindicator": "CLS", "s3Path": made },
            { "indexKey": "DEF", "effectiveDate": 20230506, "asofindicator": "ADJCLS", "s3Path": reused },
        ]
    });
    assert_eq!(view, expected);
    let day = format!("{}/{}/{}", &job[1..5], &job[5..7], &job[7..9]);
    assert!(
        made.ends_with(&format!("/exports/{day}/{job}/ABC_20240202_CLS.csv")),
        "{made}"
    );
    assert!(made.starts_with("file:///"));
    let text = std::fs::read_to_string(fixture.file(&made)).unwrap();
    assert!(text.starts_with("index_key,effective_date,asof_indicator,rank,"));
    assert!(text.lines().count() > 100);
}

#[tokio::test]
async fn job_id_has_the_date_and_a_number_of_at_least_six_digits() {
    let fixture = Fixture::new().await;
    let first = fixture.submit(inputs(1)).await;
    let today: String = sqlx::query_scalar("select to_char(now() at time zone 'utc', 'YYYYMMDD')")
        .fetch_one(&fixture.pool)
        .await
        .unwrap();
    assert_eq!(first, format!("J{today}_000001"));
    fixture
        .execute("select setval('exports.export_job_number', 999999)")
        .await;
    assert!(fixture.submit(inputs(1)).await.ends_with("_1000000"));
}

async fn rejected_fields(fixture: &Fixture, inputs: Value) -> Vec<String> {
    let (status, problem) = fixture.post(inputs).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    let fields = problem["errors"]
        .as_array()
        .unwrap_or_else(|| panic!("{problem}"));
    fields.iter().map(|field| field.to_string()).collect()
}

#[tokio::test]
async fn invalid_input_is_rejected_with_its_field_and_nothing_is_stored() {
    let fixture = Fixture::new().await;
    let good = || input("ABC", 20_240_202, "CLS");
    let cases = [
        (json!([]), "/inputs"),
        (
            json!([good(), input("ABC", 20_240_231, "CLS")]),
            "/inputs/1/effectiveDate",
        ),
        (
            json!([input("ABC", 2024, "CLS")]),
            "/inputs/0/effectiveDate",
        ),
        (json!([input("", 20_240_202, "CLS")]), "/inputs/0/indexKey"),
        (
            json!([input("a/b", 20_240_202, "CLS")]),
            "/inputs/0/indexKey",
        ),
        (
            json!([input("..", 20_240_202, "CLS")]),
            "/inputs/0/indexKey",
        ),
        (
            json!([input("a\u{7}b", 20_240_202, "CLS")]),
            "/inputs/0/indexKey",
        ),
        (
            json!([input(&"x".repeat(65), 20_240_202, "CLS")]),
            "/inputs/0/indexKey",
        ),
        (
            json!([input("ABC", 20_240_202, "a_b")]),
            "/inputs/0/asofindicator",
        ),
        (
            json!([input("ABC", 20_240_202, &"x".repeat(33))]),
            "/inputs/0/asofindicator",
        ),
        (json!([good(), good()]), "/inputs/1"),
    ];
    for (inputs, field) in cases {
        let fields = rejected_fields(&fixture, inputs.clone()).await;
        assert!(
            fields
                .iter()
                .any(|found| found.contains(&format!("\"{field}\""))),
            "{inputs}: {fields:?}"
        );
    }
    let shapes = [
        (json!({}), StatusCode::UNPROCESSABLE_ENTITY),
        (
            json!({ "inputs": [{ "indexKey": "A" }] }),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (
            json!({ "inputs": [], "more": 1 }),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (
            json!({ "inputs": [input("A", 20_240_202, "C"), { "indexKey": "A", "effectiveDate": "20240202", "asofindicator": "C" }] }),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (json!([]), StatusCode::UNPROCESSABLE_ENTITY),
    ];
    for (body, expected) in shapes {
        let (status, problem) = fixture
            .call(Method::POST, "/jobs", Some(body.clone()))
            .await;
        assert_eq!(status, expected, "{body}: {problem}");
    }
    let (status, _) = fixture
        .call_with_key(Method::POST, "/jobs", Some("{".to_owned()), None)
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_job")
            .await,
        0
    );
    for path in [
        "/jobs/J20260101_000001",
        "/jobs/nonsense",
        "/jobs/J20260101_000001/inputs",
        "/jobs/J20260101_000001/events",
    ] {
        let (status, problem) = fixture.call(Method::GET, path, None).await;
        assert_eq!(
            (status, &problem["code"]),
            (StatusCode::NOT_FOUND, &json!("export-job-not-found")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_job_has_at_most_one_hundred_thousand_inputs() {
    let fixture = Fixture::new().await;
    let job = fixture.submit(inputs(100_000)).await;
    assert_eq!(fixture.get(&job).await["pending"], 100_000);
    let fields = rejected_fields(&fixture, inputs(100_001)).await;
    assert!(fields[0].contains("100001"), "{fields:?}");
    let first: String = sqlx::query_scalar(
        "select index_key from exports.export_job_input order by next_retry_at, id limit 1",
    )
    .fetch_one(&fixture.pool)
    .await
    .unwrap();
    assert_eq!(first, "K00000", "claimed in the order of the request");
}

#[tokio::test]
async fn one_idempotency_key_creates_one_job() {
    let fixture = Fixture::new().await;
    let body = |count| Some(json!({ "inputs": inputs(count) }).to_string());
    let post = async |key, count| {
        fixture
            .call_with_key(Method::POST, "/jobs", body(count), Some(key))
            .await
    };
    let (status, first) = post("k-1", 2).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(post("k-1", 2).await, (StatusCode::OK, first.clone()));
    let (status, problem) = post("k-1", 3).await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::CONFLICT, &json!("idempotency-mismatch"))
    );
    let (status, _) = post("k-2", 2).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (status, problem) = post("", 2).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_job")
            .await,
        2
    );
}

#[tokio::test]
async fn concurrent_identical_requests_create_one_job() {
    let fixture = Fixture::new().await;
    let body = json!({ "inputs": inputs(500) }).to_string();
    let posts =
        (0..8).map(|_| fixture.call_with_key(Method::POST, "/jobs", Some(body.clone()), Some("k")));
    let answers = futures_util::future::join_all(posts).await;
    let accepted = answers
        .iter()
        .filter(|(status, _)| *status == StatusCode::ACCEPTED)
        .count();
    assert_eq!(accepted, 1, "{answers:?}");
    assert!(answers.iter().all(|(_, answer)| answer == &answers[0].1));
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_job")
            .await,
        1
    );
}
