//! Evidence from outside: the command line, and repeated kills of every process while the Case API fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::{Router, extract::State, http::HeaderMap, routing::post};
use postrider_testkit::servers::Kind;
use postrider_testkit::{Program, TestDb, within};
use serde_json::{Value, json};
use zip::write::SimpleFileOptions;

use crate::carrier::Carrier;
use crate::program::{Serving, data_dir, postrider, run_with, stdout};

/// How many rows of three files the crash test has; `POSTRIDER_TEST_EVIDENCE` makes it longer.
const ROWS: usize = 40;

/// The outcome of a file, by a word in its name.
const FATES: [&str; 12] = [
    "good", "good", "good", "busy", "broken", "late", "hang", "after", "auth", "nocase", "bad",
    "never",
];

pub fn archive(rows: usize) -> Vec<u8> {
    let mut manifest = "case_id,reference,files\n".to_owned();
    let mut names = Vec::new();
    for row in 0..rows {
        let files: Vec<String> = (0..3)
            .map(|n| format!("r{row}-{n}-{}.pdf", FATES[(row * 3 + n) % FATES.len()]))
            .collect();
        let case = uuid(row);
        manifest.push_str(&format!("{case},R{row},{}\n", files.join(";")));
        names.extend(files);
    }
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let mut add = |name: &str, content: &[u8]| {
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    };
    add("manifest.csv", manifest.as_bytes());
    for name in &names {
        add(name, format!("evidence {name}").as_bytes());
    }
    zip.finish().unwrap().into_inner()
}

fn uuid(n: usize) -> String {
    format!("00000000-0000-4000-8000-{n:012x}")
}

pub fn script() -> Value {
    let status = |name: &str, first: Option<u32>, status: u16| json!({ "file_name": name, "first_calls": first, "do": { "fail": { "status": status } } });
    json!([
        status("busy", Some(1), 503),
        status("broken", Some(2), 500),
        { "file_name": "late", "first_calls": 1, "do": { "stall": { "for": 4 } } },
        { "file_name": "hang", "first_calls": 1, "do": "hang_up" },
        { "file_name": "after", "first_calls": 1, "do": { "fail_after": { "status": 500 } } },
        status("auth", None, 401),
        status("nocase", None, 404),
        status("bad", None, 422),
        status("never", None, 503),
    ])
}

/// A simulated Case API in a separate process, so that its state survives ours.
pub async fn cases(script: &std::path::Path) -> (Program, String) {
    let script = script.to_str().unwrap();
    let words = [
        "sim",
        "cases",
        "--listen",
        "127.0.0.1:0",
        "--script",
        script,
    ];
    let mut program = Program::start(&postrider(&words));
    let line = program.line_with("listens on ").await;
    let url = line.split_once("listens on ").unwrap().1.trim().to_owned();
    (program, url)
}

/// What a receiver got, in order of arrival: id and body.
pub type Got = Arc<Mutex<Vec<(String, Value)>>>;

pub async fn receiver() -> (String, Got) {
    async fn take(State(got): State<Got>, headers: HeaderMap, body: String) {
        let id = headers["webhook-id"].to_str().unwrap().to_owned();
        assert!(
            headers["webhook-signature"]
                .to_str()
                .unwrap()
                .starts_with("v1,")
        );
        let body = serde_json::from_str(&body).unwrap();
        got.lock().unwrap().push((id, body));
    }
    let got = Got::default();
    let routes = Router::new()
        .route("/hook", post(take))
        .with_state(Arc::clone(&got));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, got)
}

#[tokio::test]
async fn command_line_submits_shows_and_lists_evidence() {
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &[]).await;
    let server = serving.base().to_owned();
    let evidence = async |more: &[&str]| {
        let words = [&["evidence", "--server", &server, "--json"], more].concat();
        let output = run_with(&words).await;
        (output.status.code(), stdout(&output))
    };
    let file = dir.path().join("e.zip");
    std::fs::write(&file, archive(2)).unwrap();
    let file = file.to_str().unwrap();
    let (code, view) = evidence(&["submit", file, "--merchant", "m-1", "--wait"]).await;
    assert_eq!(code, Some(0), "{view}");
    let view: Value = serde_json::from_str(&view).unwrap();
    assert_eq!(
        (&view["status"], &view["attached"]),
        (&json!("COMPLETED"), &json!(6))
    );
    let id = view["file_job_id"].as_str().unwrap();
    let (_, shown) = evidence(&["show", id]).await;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["rows"], view["rows"]);
    let (_, listed) = evidence(&["list", "--merchant", "m-1", "--status", "completed"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["items"][0]["file_job_id"], id);
    assert_eq!(evidence(&["retry", id]).await.0, Some(7), "it is closed");
    let metrics = serving
        .get("/metrics")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    for name in [
        "evidence_attach_first_attempt_success_rate ",
        "evidence_attach_retry_success_rate ",
        "evidence_retry_queue_depth{unit=\"rows\"}",
        "evidence_retry_queue_depth{unit=\"artifacts\"}",
        "evidence_n2_latency_seconds_count",
        "evidence_permanent_failures_count{error_code=\"CASE_NOT_FOUND\"} 0",
        "scheduler_duration_seconds_count",
        "scheduler_batch_size ",
        "scheduler_circuit_breaker_open_count 0",
    ] {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
}

pub struct Fixture {
    pub database: String,
    /// The transport's settings.
    pub carrier: Vec<String>,
    pub store: String,
    pub cases: String,
    pub hook: String,
}

impl Fixture {
    pub fn command(&self, roles: &str) -> Command {
        let settings = [
            format!("store.url={}", self.store),
            format!("evidence.case_api.url={}", self.cases),
            format!("evidence.notify.url={}", self.hook),
            "evidence.notify.secret=whsec_c2VjcmV0".to_owned(),
            "evidence.notify.timeout=2".to_owned(),
            "evidence.case_api.timeout=2".to_owned(),
            "evidence.lease.seconds=2".to_owned(),
            "evidence.retry.backoff.initial_delay=0.5".to_owned(),
            "evidence.retry.backoff.max_delay=1".to_owned(),
            "evidence.scheduler.interval=0.5".to_owned(),
            "evidence.scheduler.sleep_between_batches=0.1".to_owned(),
            "evidence.breaker.threshold=1000000".to_owned(),
        ];
        let mut words = vec!["serve", "--listen", "127.0.0.1:0", "--roles", roles];
        words.extend(["--database-url", &self.database]);
        for setting in settings.iter().chain(&self.carrier) {
            words.extend(["--set", setting]);
        }
        postrider(&words)
    }
}

#[tokio::test]
async fn after_kills_each_file_is_attached_once_and_both_notifications_are_correct() {
    kill_everything_repeatedly(None).await;
}

#[tokio::test]
async fn after_kills_over_kafka_each_file_is_attached_once_and_both_notifications_are_correct() {
    kill_everything_repeatedly(Some(Kind::Kafka)).await;
}

async fn kill_everything_repeatedly(kind: Option<Kind>) {
    let rows = std::env::var("POSTRIDER_TEST_EVIDENCE").map_or(ROWS, |n| n.parse().unwrap());
    let patience = Duration::from_secs(240 + rows as u64);
    let (db, dir) = (TestDb::new().await, data_dir());
    let Some(carrier) = Carrier::new(kind, &db).await else {
        return;
    };
    let script_file = dir.path().join("script.json");
    std::fs::write(&script_file, script().to_string()).unwrap();
    let (_cases, cases) = cases(&script_file).await;
    let (hook, got) = receiver().await;
    let fixture = Fixture {
        database: carrier.database_url(&db),
        carrier: carrier.settings(),
        store: format!("file://{}/store", dir.path().display()),
        cases: cases.clone(),
        hook,
    };
    let api = Serving::start(&fixture.command("api")).await;
    let http = reqwest::Client::new();
    let answer = http
        .post(format!("{}/file-jobs?merchant_id=m-1", api.base()))
        .header("content-type", "application/zip")
        .body(archive(rows))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 202);
    let job: Value = answer.json().await.unwrap();
    let path = format!("/file-jobs/{}", job["file_job_id"].as_str().unwrap());

    // The running processes are killed in turn until the job is closed; the schedulers' lease takes a while to pass on. The
    // worker is the notifier, too.
    let roles = [
        "publisher",
        "worker",
        "worker",
        "carrier",
        "worker",
        "publisher",
        "scheduler",
        "worker",
        "worker",
    ];
    let mut running: BTreeMap<&str, Serving> = BTreeMap::new();
    for role in ["publisher", "worker", "scheduler"] {
        running.insert(role, Serving::start(&fixture.command(role)).await);
    }
    let (started, mut kills) = (Instant::now(), 0);
    loop {
        let view = api.json(&format!("{path}?limit=1")).await;
        if view["status"] == "COMPLETED" {
            break;
        }
        assert!(started.elapsed() < patience, "not finished: {view}");
        if kills < 12 + rows / 20 {
            match roles[kills % roles.len()] {
                "carrier" => carrier.restart(true).await,
                role => {
                    if role == "worker" {
                        wait_for_work_in_progress(&db).await;
                    }
                    running.remove(role).unwrap().kill().await;
                    running.insert(role, Serving::start(&fixture.command(role)).await);
                }
            }
            kills += 1;
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    within(patience, "both notifications arrive", async || {
        let ids: BTreeSet<String> = got
            .lock()
            .unwrap()
            .iter()
            .map(|(id, _)| id.clone())
            .collect();
        if ids.len() == 2 { Ok(()) } else { Err(ids) }
    })
    .await;
    println!(
        "{rows} rows over {}, {kills} kills, {:?}",
        carrier.name(),
        started.elapsed()
    );
    let got = got.lock().unwrap().clone();
    check(&db, &http, &cases, &got, rows).await;
}

/// Waits briefly until files are in progress, so that a kill hits something.
async fn wait_for_work_in_progress(db: &TestDb) {
    let held = "select exists (select from evidence.file_job_artifact where held_by is not null)";
    for _ in 0..200 {
        let held: bool = sqlx::query_scalar(held)
            .fetch_one(&db.pool())
            .await
            .unwrap();
        if held {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Checks every promise against the database, the Case API and the receiver.
pub async fn check(
    db: &TestDb,
    http: &reqwest::Client,
    cases: &str,
    got: &[(String, Value)],
    rows: usize,
) {
    let pool = db.pool();
    let ask = async |path: &str| -> Value {
        let answer = http.get(format!("{cases}/{path}")).send().await.unwrap();
        answer.json().await.unwrap()
    };
    let mut attached = ask("evidence").await;
    let attached: BTreeMap<String, Value> =
        serde_json::from_value(attached["evidence"].take()).unwrap();
    let mut calls = ask("calls").await;
    let calls: Vec<Value> = serde_json::from_value(calls["calls"].take()).unwrap();
    let mut called: BTreeMap<&str, i64> = BTreeMap::new();
    for call in &calls {
        *called
            .entry(call["artifact_id"].as_str().unwrap())
            .or_default() += 1;
    }
    type Artifact = (String, String, String, i32, i32, Option<String>, i64, i64);
    let artifacts: Vec<Artifact> = sqlx::query_as(
        "select a.id::text, a.file_name, a.attachment_status::text, a.attempt_count, a.retry_count, a.attachment_error_code,
                (select count(*) from evidence.attach_attempt t where t.artifact_id = a.id and t.outcome <> 'LOST'),
                (select count(*) from evidence.attach_attempt t where t.artifact_id = a.id and t.outcome = 'LOST')
         from evidence.file_job_artifact a",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(artifacts.len(), 3 * rows);
    let mut errors: BTreeMap<String, i64> = BTreeMap::new();
    let (mut recovered, mut lost_calls) = (0, 0);
    for (id, name, status, attempts, retries, code, journal, lost) in &artifacts {
        let fate = name.trim_end_matches(".pdf").rsplit('-').next().unwrap();
        let fails = ["auth", "nocase", "bad", "never"].contains(&fate);
        assert_eq!(status == "ATTACHED", !fails, "{name} is {status}");
        // The other side agrees: it has what we say, and nothing else.
        assert_eq!(attached.contains_key(id), !fails, "{name}");
        // Counters follow the journal, and the API's own log but for calls that the journal calls lost.
        assert_eq!(i64::from(*attempts), *journal, "{name}");
        assert_eq!(*retries, (attempts - 1).max(0), "{name}");
        let called = called.get(id.as_str()).copied().unwrap_or_default();
        let between = i64::from(*attempts)..=i64::from(*attempts) + lost;
        assert!(
            between.contains(&called),
            "{name}: {called} calls, {attempts} attempts, {lost} lost"
        );
        lost_calls += called - i64::from(*attempts);
        match fate {
            "auth" | "nocase" | "bad" => assert_eq!(*attempts, 1, "{name} was retried"),
            _ => assert!(*attempts <= 3, "{name} was tried {attempts} times"),
        }
        if let Some(code) = code {
            *errors.entry(code.clone()).or_default() += 1;
        }
        recovered += i64::from(!fails && *retries > 0);
    }
    println!(
        "{} calls, {lost_calls} of them lost in a crash",
        calls.len()
    );
    for (name, query) in [
        (
            "rows follow artifacts",
            "select count(*) from evidence.file_job_row r
             join lateral (select count(*) filter (where a.attachment_status = 'ATTACHED') as attached,
                                  count(*) filter (where a.attachment_status = 'FAILED') as failed
                           from evidence.file_job_artifact a where a.file_job_row_id = r.id) c on true
             where r.evidence_attached_count <> c.attached or r.evidence_failed_count <> c.failed",
        ),
        (
            "nothing is held",
            "select count(*) from evidence.file_job_artifact where held_by is not null",
        ),
        (
            "nothing is retryable",
            "select count(*) from evidence.file_job_artifact where is_retryable",
        ),
    ] {
        let wrong: i64 = sqlx::query_scalar(query).fetch_one(&pool).await.unwrap();
        assert_eq!(wrong, 0, "{name}");
    }
    // Once each by id, in this order; an id that came twice said the same twice.
    let mut first = BTreeMap::new();
    let mut order = Vec::new();
    for (id, body) in got {
        match first.get(id) {
            Some(same) => assert_eq!(same, &body),
            None => {
                first.insert(id, body);
                order.push(body);
            }
        }
    }
    let kinds: Vec<&str> = order
        .iter()
        .map(|body| body["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["evidence.n1", "evidence.n2"]);
    let (n1, n2) = (order[0], order[1]);
    let total = i64::try_from(artifacts.len()).unwrap();
    let failed: i64 = errors.values().sum();
    assert_eq!(
        (n1["total"].as_i64(), n2["total"].as_i64()),
        (Some(total), Some(total))
    );
    assert_eq!(
        n1["attached"].as_i64().unwrap() + n1["failed"].as_i64().unwrap(),
        total
    );
    assert_eq!(n2["attached"].as_i64(), Some(total - failed));
    assert_eq!(n2["permanent_failed"].as_i64(), Some(failed));
    assert_eq!(n2["recovered_by_retry"].as_i64(), Some(recovered));
    assert_eq!(n2["errors"], json!(errors));
    assert_eq!(n2["unsettled"], 0);
    assert_eq!(n2["forced"], false);
    assert_eq!(
        n2["cannot_retry"].as_array().unwrap().len(),
        usize::try_from(failed).unwrap()
    );
}
