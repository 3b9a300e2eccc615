//! Every crash point of evidence, by an error and by a kill: each file is attached once, and both notifications are correct.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use postrider_testkit::{TestDb, crash, within};
use serde_json::Value;

use crate::evidence::{Fixture, archive, cases, check, receiver, script};
use crate::program::{Serving, data_dir};

/// Every outcome once.
const ROWS: usize = 4;

const TIMEOUT: Duration = Duration::from_secs(180);

#[tokio::test]
async fn after_a_failure_at_any_crash_point_each_file_is_attached_once_and_notified_twice() {
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut points = crash::declared_in(format!("{crates}/services/evidence/src"));
    // Its consumers handle batches; those points are in the library.
    let engine = crash::declared_in(format!("{crates}/postrider/src/transport"));
    points.extend(
        engine
            .into_iter()
            .filter(|point| point.contains(".before_batch_")),
    );
    assert!(points.len() >= 10, "{points:?}");
    let walks: Vec<(String, &str)> = points
        .iter()
        .flat_map(|point| ["error", "kill"].map(|way| (point.clone(), way)))
        .collect();
    stream::iter(walks)
        .for_each_concurrent(2, |(point, way)| async move { walk(&point, way).await })
        .await;
}

async fn walk(point: &str, way: &str) {
    let (db, dir) = (TestDb::new().await, data_dir());
    let script_file = dir.path().join("script.json");
    std::fs::write(&script_file, script().to_string()).unwrap();
    let (_cases, cases) = cases(&script_file).await;
    let (hook, got) = receiver().await;
    let fixture = Fixture {
        database: db.url(),
        carrier: Vec::new(),
        store: format!("file://{}/store", dir.path().display()),
        cases: cases.clone(),
        hook,
    };
    let all = "api,publisher,worker,scheduler";
    let mut armed = fixture.command(all);
    armed.env(crash::VARIABLE, format!("{point}={way}@1"));
    let mut serving = Serving::start(&armed).await;
    let http = reqwest::Client::new();
    let job = loop {
        if serving.has_ended() {
            serving = Serving::start(&fixture.command(all)).await;
        }
        let post = http
            .post(format!("{}/file-jobs?merchant_id=m-1", serving.base()))
            .header("content-type", "application/zip")
            .body(archive(ROWS));
        match post.send().await {
            Ok(answer) if answer.status() == 202 => break answer.json::<Value>().await.unwrap(),
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let path = format!("/file-jobs/{}", job["file_job_id"].as_str().unwrap());
    let what = format!("{point}, {way}: the job is closed and notified");
    within(TIMEOUT, &what, async || {
        if serving.has_ended() {
            serving = Serving::start(&fixture.command(all)).await;
        }
        let Ok(answer) = serving.get(&path).send().await else {
            return Err("no answer".to_owned());
        };
        let view: Value = answer.json().await.unwrap_or_default();
        let notified: std::collections::BTreeSet<String> = got
            .lock()
            .unwrap()
            .iter()
            .map(|(id, _)| id.clone())
            .collect();
        if view["status"] == "COMPLETED" && notified.len() == 2 {
            Ok(())
        } else {
            Err(format!(
                "{}: {} notifications of {view}",
                view["status"],
                notified.len()
            ))
        }
    })
    .await;
    let got = got.lock().unwrap().clone();
    check(&db, &http, &cases, &got, ROWS).await;
    // Nothing of an upload that was refused half-way, and nothing of one that died before its job is in use.
    let jobs: i64 = sqlx::query_scalar("select count(*) from evidence.file_job")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    assert_eq!(jobs, 1, "{point}, {way}");
}
