//! The source: rows in, file out.

use async_compression::tokio::bufread::GzipDecoder;
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::support::{Fixture, input, settings};

#[tokio::test]
async fn sample_source_has_rows_for_its_keys_only() {
    let fixture = Fixture::new().await;
    let few = fixture.count(
        "select count(*) from unnest(array['ABC', 'DEF', 'GHI']) k, unnest(array['CLS', 'ADJCLS']) a,
                generate_series(date '2023-01-01', '2024-12-31', interval '1 day') d
         where (select count(*) from exports.sample_constituents(k, d::date, a)) < 100",
    )
    .await;
    assert_eq!(few, 0);
    let other = fixture.count(
        "select count(*) from (select * from exports.sample_constituents('XYZ', '2024-01-01', 'CLS')
         union all select * from exports.sample_constituents('ABC', '2025-01-01', 'CLS')
         union all select * from exports.sample_constituents('ABC', '2022-12-31', 'CLS')
         union all select * from exports.sample_constituents('ABC', '2024-01-01', 'OPEN')) x",
    )
    .await;
    assert_eq!(other, 0);
}

#[tokio::test]
async fn empty_result_is_a_permanent_failure_unless_allowed() {
    let fixture = Fixture::new().await;
    let empty = "select $1::text as \"a\n\"\"b\" where false";
    let stop = tokio_util::sync::CancellationToken::new();
    let worker = fixture.start_worker_until(
        &settings(json!({ "source": { "query": empty } })),
        stop.clone(),
    );
    let job = fixture.submit(json!([input("A", 20_240_202, "CLS")])).await;
    fixture.wait_for_status(&job, "FAILED").await;
    let dead = fixture.count("select count(*) from exports.export_job_input where error_code = 'NO_DATA' and attempt_count = 1 and error_category = 'DATA'").await;
    assert_eq!(dead, 1);
    assert_eq!(fixture.temporaries(), Vec::<std::path::PathBuf>::new());
    stop.cancel();
    worker.await.unwrap().unwrap();
    fixture.start_worker(&settings(
        json!({ "source": { "query": empty, "allow_empty": true } }),
    ));
    fixture.action(&job, "redrive").await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    let text =
        std::fs::read_to_string(fixture.file(view["dataContent"][0]["s3Path"].as_str().unwrap()))
            .unwrap();
    assert_eq!(text, "\"a\n\"\"b\"\n");
}

#[tokio::test]
async fn large_file_equals_its_source() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({ "source": { "query": "select n, repeat(md5(n::text || $1), 30) as x from generate_series(1, 30000) n" } })));
    let job = fixture.submit(json!([input("A", 20_240_202, "CLS")])).await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    let text =
        std::fs::read(fixture.file(view["dataContent"][0]["s3Path"].as_str().unwrap())).unwrap();
    let expected: Vec<(String,)> = sqlx::query_as(
        "select n || ',' || repeat(md5(n::text || 'A'), 30) from generate_series(1, 30000) n",
    )
    .fetch_all(&fixture.pool)
    .await
    .unwrap();
    let mut whole = "n,x\n".to_owned();
    for (line,) in expected {
        whole.push_str(&line);
        whole.push('\n');
    }
    assert!(text.len() > 20 * 1024 * 1024 && text == whole.as_bytes());
}

#[tokio::test]
async fn files_are_compressed_if_configured() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({ "file": { "gzip": true } })));
    let job = fixture.submit(json!([input("A", 20_240_202, "CLS")])).await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    let path = view["dataContent"][0]["s3Path"].as_str().unwrap();
    assert!(path.ends_with("A_20240202_CLS.csv.gz"));
    let packed = std::fs::read(fixture.file(path)).unwrap();
    let mut text = String::new();
    GzipDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .await
        .unwrap();
    assert!(
        text.starts_with("key,day,n,filler\nA,2024-02-02,1,") && text.lines().count() == 21,
        "{text}"
    );
}

#[tokio::test]
async fn source_may_be_another_database_and_values_are_quoted() {
    let fixture = Fixture::new().await;
    let other = Fixture::new().await;
    other.execute("create table prices (key text, day integer, asof text, price numeric); insert into prices values ('A-B', 20240202, 'CLS', 1.5)").await;
    fixture.start_worker(&settings(json!({ "source": {
        "url": other.db.url(), "query": "select price, '$1' as kept from prices where key = $1 and day = $2 and asof = $3 -- all of it"
    } })));
    let job = fixture
        .submit(json!([input("A-B", 20_240_202, "CLS")]))
        .await;
    let view = fixture.wait_for_status(&job, "COMPLETED").await;
    let text =
        std::fs::read_to_string(fixture.file(view["dataContent"][0]["s3Path"].as_str().unwrap()))
            .unwrap();
    assert_eq!(text, "price,kept\n1.5,$1\n");
}

#[tokio::test]
async fn error_in_the_middle_of_the_rows_leaves_no_file() {
    let fixture = Fixture::new().await;
    fixture.start_worker(&settings(json!({ "source": { "query": "select 1 / (20000 - n) as x, repeat('y', 1000) from generate_series(1, 30000) n" } })));
    let job = fixture.submit(json!([input("A", 20_240_202, "CLS")])).await;
    let view = fixture.wait_for_status(&job, "FAILED").await;
    assert!(
        view["errorMessage"]
            .as_str()
            .unwrap()
            .contains("SOURCE_DATA"),
        "{view}"
    );
    assert_eq!(view["dataContent"], json!([]));
    assert_eq!(fixture.temporaries(), Vec::<std::path::PathBuf>::new());
    assert_eq!(
        fixture
            .count("select count(*) from exports.export_artifact")
            .await,
        0
    );
}
