//! Exports from outside: the command line, and kills of workers at any moment.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use postrider_testkit::{TestDb, within};
use serde_json::{Value, json};

use crate::{
    commands::token,
    program::{Serving, data_dir, postrider, run_with, stderr, stdout},
};

/// Number of inputs of the crash test; override with `POSTRIDER_TEST_EXPORTS`.
const INPUTS: usize = 1_000;

/// One kill per this number of inputs.
const INPUTS_PER_KILL: usize = 100;

const TIMEOUT: Duration = Duration::from_secs(900);

fn input(index: &str, date: u32, indicator: &str) -> Value {
    json!({ "indexKey": index, "effectiveDate": date, "asofindicator": indicator })
}

#[tokio::test]
async fn command_line_submits_watches_shows_lists_and_downloads_an_export() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let server = serving.base().to_owned();
    let exports = async |more: &[&str]| {
        run_with(&[&["exports", "--server", &server, "--json"], more].concat()).await
    };
    let read = |output: &std::process::Output| -> Value {
        serde_json::from_str(&stdout(output)).unwrap_or_else(|_| panic!("{}", stderr(output)))
    };
    let file = dir.path().join("inputs.json");
    let inputs = [
        input("ABC", 20_240_202, "CLS"),
        input("DEF", 20_230_506, "ADJCLS"),
    ];
    std::fs::write(&file, json!({ "inputs": inputs }).to_string()).unwrap();
    let path = file.to_str().unwrap();
    let done = exports(&["submit", path, "--wait", "--idempotency-key", "k"]).await;
    let view = read(&done);
    assert_eq!(
        (done.status.code(), &view["status"]),
        (Some(0), &json!("COMPLETED"))
    );
    let job = view["jobId"].as_str().unwrap().to_owned();
    let again = read(&exports(&["submit", path, "--idempotency-key", "k"]).await);
    assert_eq!(again["jobId"], job.as_str(), "one key is one job");
    let shown = read(&exports(&["show", &job]).await);
    assert_eq!(shown["job"], view);
    assert_eq!(shown["inputs"][1]["status"], "SUCCEEDED");
    assert_eq!(shown["next_cursor"], Value::Null);
    let first = read(&exports(&["show", &job, "--limit", "1"]).await);
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = read(&exports(&["show", &job, "--limit", "1", "--cursor", cursor]).await);
    assert_eq!(
        (&first["inputs"][0], &rest["inputs"][0]),
        (&shown["inputs"][0], &shown["inputs"][1])
    );
    let text = run_with(&["exports", "show", &job, "--limit", "1", "--server", &server]).await;
    assert!(
        stdout(&text).contains(&format!("more: --cursor {cursor}")),
        "{}",
        stdout(&text)
    );
    let listed = read(&exports(&["list", "--status", "COMPLETED"]).await);
    assert_eq!(listed["items"][0]["jobId"], job.as_str());
    let target = dir.path().join("files");
    let fetched = exports(&["download", &job, "--dir", target.to_str().unwrap()]).await;
    assert_eq!(read(&fetched)["files"], 2);
    for (name, view) in [("ABC_20240202_CLS.csv", 0), ("DEF_20230506_ADJCLS.csv", 1)] {
        let stored = url::Url::parse(shown["inputs"][view]["s3Path"].as_str().unwrap()).unwrap();
        let stored = std::fs::read(stored.to_file_path().unwrap()).unwrap();
        assert_eq!(std::fs::read(target.join(name)).unwrap(), stored);
    }
    let path_of_first = shown["inputs"][0]["s3Path"].as_str().unwrap();
    let first = url::Url::parse(path_of_first).unwrap();
    std::fs::remove_file(first.to_file_path().unwrap()).unwrap();
    let gone = exports(&["download", &job, "--dir", target.to_str().unwrap()]).await;
    assert_eq!(gone.status.code(), Some(7));
    let failure: Value = serde_json::from_slice(&gone.stderr).unwrap();
    assert_eq!(failure["error"]["code"], "export-file-gone");
    let message = failure["error"]["message"].as_str().unwrap();
    assert!(message.contains("Submit this input again"), "{message}");
    let resubmitted = read(&exports(&["submit", path, "--wait"]).await);
    assert_eq!(
        (&resubmitted["filesGenerated"], &resubmitted["filesReused"]),
        (&json!(1), &json!(1)),
        "as the message says"
    );
    assert_eq!(
        exports(&["cancel", &job]).await.status.code(),
        Some(7),
        "it is over"
    );
    assert_eq!(
        exports(&["redrive", &job]).await.status.code(),
        Some(7),
        "it has not failed"
    );
    assert_eq!(
        exports(&["show", "J20200101_000001"]).await.status.code(),
        Some(7)
    );
    // A bare list of inputs is accepted, and the exit code reports a failed job.
    std::fs::write(&file, json!([input("NONE", 20_240_202, "CLS")]).to_string()).unwrap();
    let failed = exports(&["submit", path, "--wait"]).await;
    assert_eq!(
        (failed.status.code(), &read(&failed)["status"]),
        (Some(1), &json!("FAILED"))
    );
    std::fs::write(&file, json!([input("NONE", 20_240_231, "CLS")]).to_string()).unwrap();
    let refused = exports(&["submit", path, "--wait"]).await;
    assert_eq!(refused.status.code(), Some(7));
    assert!(
        stderr(&refused).contains("/inputs/0/effectiveDate"),
        "{}",
        stderr(&refused)
    );
    let metrics = serving
        .get("/metrics")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        metrics.contains("exports_jobs_total{outcome=\"completed\"} 2"),
        "{metrics}"
    );
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn failed_wait_names_the_accepted_job() {
    let (db, dir) = (TestDb::new().await, data_dir());
    let url = db.url();
    // It may submit, but not look.
    let (token, allowed) = token("submit").await;
    let serving = Serving::on(dir.path(), &["--database-url", &url, "--set", &allowed]).await;
    let file = dir.path().join("inputs.json");
    std::fs::write(&file, json!([input("ABC", 20_240_202, "CLS")]).to_string()).unwrap();
    let submit = ["exports", "submit", file.to_str().unwrap(), "--wait"];
    let output = run_with(
        &[
            &submit[..],
            &["--server", serving.base(), "--token", &token],
        ]
        .concat(),
    )
    .await;
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let job: String = sqlx::query_scalar("select job_key from exports.export_job")
        .fetch_one(&db.pool())
        .await
        .unwrap();
    let said = stderr(&output);
    assert!(
        said.contains(&format!("postrider exports show {job}")),
        "{said}"
    );
}

fn serve(db: &TestDb, dir: &Path, roles: &str) -> Command {
    let mut words = vec!["serve".to_owned(), "--roles".to_owned(), roles.to_owned()];
    words.extend(["--listen", "127.0.0.1:0", "--database-url"].map(str::to_owned));
    words.push(db.url());
    for setting in [
        &format!("store.url=file://{}", dir.display()),
        "exports.source.query=select $1 as key, n, md5($1 || n) as sum from generate_series(1, 30) n",
        "exports.worker.lease.seconds=2",
        "exports.finalizer.interval_ms=500",
        "log.level=warn",
    ] {
        words.extend(["--set".to_owned(), setting.to_owned()]);
    }
    postrider(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[tokio::test]
async fn after_kills_the_job_completes_and_each_file_is_complete_and_registered_once() {
    let count = std::env::var("POSTRIDER_TEST_EXPORTS").map_or(INPUTS, |n| n.parse().unwrap());
    let db = TestDb::new().await;
    let files = tempfile::tempdir().unwrap();
    let api = Serving::start(&serve(&db, files.path(), "api,scheduler")).await;
    let inputs: Vec<Value> = (0..count)
        .map(|n| input(&format!("K{n:05}"), 20_240_202, "CLS"))
        .collect();
    let accepted = reqwest::Client::new()
        .post(format!("{}/jobs", api.base()))
        .json(&json!({ "inputs": inputs }))
        .send()
        .await
        .unwrap();
    let accepted: Value = accepted.json().await.unwrap();
    let job = accepted["jobId"].as_str().unwrap().to_owned();
    let pool = db.pool();
    let done = async || -> i64 {
        sqlx::query_scalar(
            "select count(*) from exports.export_job_input where status = 'SUCCEEDED'",
        )
        .fetch_one(&pool)
        .await
        .unwrap()
    };
    let worker = async || Serving::start(&serve(&db, files.path(), "worker")).await;
    let mut workers = vec![worker().await, worker().await];
    let kills = count / INPUTS_PER_KILL;
    for kill in 1..kills {
        let enough = i64::try_from(count * kill / kills).unwrap();
        within(TIMEOUT, "some more are done", async || match done().await {
            n if n >= enough => Ok(()),
            n => Err(n),
        })
        .await;
        workers.remove(0).kill().await;
        workers.push(worker().await);
    }
    let end = within(TIMEOUT, "the job is over", async || {
        let view = api
            .json(&format!("/jobs/{job}/inputs?limit=1&status=RUNNING"))
            .await;
        let listed = api.json("/jobs").await;
        let status = listed["items"][0]["status"].clone();
        if status == "COMPLETED" || status == "FAILED" {
            Ok(listed["items"][0].clone())
        } else {
            Err((status, view))
        }
    })
    .await;
    assert_eq!(end["status"], "COMPLETED", "{end}");

    let registered: Vec<(String, String, String)> = sqlx::query_as(
        "select i.index_key, i.s3_path, a.s3_path from exports.export_job_input i
         join exports.export_artifact a using (index_key, effective_date, asof_indicator)",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(
        registered.len(),
        count,
        "each input has exactly one entry in the registry"
    );
    let expected: HashMap<String, String> = sqlx::query_as::<_, (String, String)>(
        "select index_key, 'key,n,sum' || E'\\n' || string_agg(index_key || ',' || n || ',' || md5(index_key || n) || E'\\n', '' order by n)
         from exports.export_job_input, generate_series(1, 30) n group by index_key",
    )
    .fetch_all(&pool)
    .await
    .unwrap()
    .into_iter()
    .collect();
    for (key, path, entry) in &registered {
        assert_eq!(path, entry, "{key}");
        let file = url::Url::parse(path).unwrap().to_file_path().unwrap();
        assert_eq!(
            &std::fs::read_to_string(file).unwrap(),
            &expected[key],
            "{key} is whole and equal to the source"
        );
    }
    for worker in workers {
        worker.kill().await;
    }
    let store = postrider_blob::Settings::directory(files.path())
        .open(files.path())
        .unwrap();
    let swept = store.sweep(Duration::ZERO).await.unwrap();
    let losses: i64 = sqlx::query_scalar("select sum(losses) from exports.export_job_input")
        .fetch_one(&pool)
        .await
        .unwrap();
    println!(
        "{count} inputs, {} kills, {losses} losses, {swept} temporaries swept",
        kills.saturating_sub(1)
    );
    let left = all_files(files.path());
    assert_eq!(left.len(), count, "nothing else is left in the store");
}

fn all_files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found
}
