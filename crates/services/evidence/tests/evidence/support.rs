//! The fixture: a database, a store, the API, a Case API, and background tasks on demand.

use std::io::{Cursor, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::{
    Router,
    body::Body,
    extract::FromRef,
    http::{Method, Request, StatusCode},
};
use http_body_util::BodyExt;
use postrider::{
    Worker, breaker::Breakers, migrate::Migrator, outbox::OUTBOX, publisher::Publisher,
    transport::Transport,
};
use postrider_blob::Store;
use postrider_evidence::{
    Evidence, Settings,
    cases::{CaseApi, HttpCases},
    notify::{self, Deliverer},
    scheduler::Scheduler,
    summary_gate::Gate,
    task_consumer, worker,
};
use postrider_sim::{
    FaultScript,
    case_api::{SimulatedCaseApi, routes},
};
use postrider_testkit::TestDb;
pub use postrider_testkit::within;
use postrider_transports::PostgresTransport;
use postrider_web::{MiddlewareOptions, http_client::Endpoint, with_middleware};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use uuid::Uuid;
use zip::write::SimpleFileOptions;

pub const DEADLINE: Duration = Duration::from_secs(90);

#[derive(Clone)]
struct AppState(Evidence);

impl FromRef<AppState> for Evidence {
    fn from_ref(state: &AppState) -> Self {
        state.0.clone()
    }
}

pub struct Fixture {
    db: TestDb,
    pub pool: PgPool,
    pub dir: tempfile::TempDir,
    pub store: Store,
    pub settings: Settings,
    router: Router,
    stop: CancellationToken,
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(json!({})).await
    }

    pub async fn with(change: Value) -> Self {
        let settings = settings(change);
        let db = TestDb::from_template("evidence", async |connection| {
            Migrator::new([postrider::migrations(), postrider_evidence::migrations()])
                .run(connection)
                .await
                .map(drop)
        })
        .await;
        let pool = db.pool_of(20);
        let dir = tempfile::tempdir().unwrap();
        let store = postrider_blob::Settings::directory(dir.path())
            .open(dir.path())
            .unwrap();
        let evidence = Evidence::start(pool.clone(), store.clone(), &settings).unwrap();
        let (router, _) = postrider_evidence::routes::<AppState>().split_for_parts();
        let router = router.with_state(AppState(evidence));
        Self {
            db,
            pool,
            dir,
            store,
            settings,
            router: with_middleware(router, MiddlewareOptions::default()),
            stop: CancellationToken::new(),
        }
    }

    /// A connection outside the pool.
    pub async fn connect(&self) -> PgConnection {
        self.db.connect().await
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(PostgresTransport::new(self.pool.clone()).unwrap())
    }

    /// Starts the publisher of the outbox.
    pub async fn publish(&self) {
        let breakers = Breakers::default();
        let pool = self.pool.clone();
        let publisher = Publisher::new(self.transport(), &breakers, pool.clone(), &OUTBOX)
            .await
            .unwrap();
        let worker = publisher.attach_to(Worker::new(pool, &OUTBOX).unwrap());
        tokio::spawn(worker.run(self.stop.clone()));
    }

    /// Starts the consumer of attach events.
    pub fn consume_events(&self) {
        let lease = Duration::from_secs(5);
        let consumer = task_consumer::run(
            self.pool.clone(),
            self.transport(),
            lease,
            self.stop.clone(),
        );
        tokio::spawn(consumer);
    }

    /// Starts a worker with this Case API.
    pub fn start_worker(&self, cases: Arc<dyn CaseApi>) {
        self.start_worker_with(&self.settings, cases);
    }

    /// Starts a worker with other settings.
    pub fn start_worker_with(&self, settings: &Settings, cases: Arc<dyn CaseApi>) {
        let breakers = Breakers::default();
        let common = postrider::breaker::Settings::default();
        let worker = worker::worker(
            self.pool.clone(),
            self.store.clone(),
            settings,
            cases,
            &breakers,
            settings.breaker.over(common),
        )
        .unwrap();
        tokio::spawn(worker.run(self.stop.clone()));
    }

    /// Starts the consumers of results and notifications.
    pub fn notify(&self) {
        let gate = Gate::new(self.pool.clone(), &self.settings);
        let lease = Duration::from_secs(5);
        let watch = notify::watch(gate, self.transport(), lease, self.stop.clone());
        tokio::spawn(watch);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let deliverer = Deliverer::new(self.pool.clone(), &self.settings.notify).unwrap();
        let deliver = notify::deliver(deliverer, self.transport(), lease, self.stop.clone());
        tokio::spawn(deliver);
    }

    pub fn scheduler(&self) -> Scheduler {
        Scheduler::new(self.pool.clone(), self.store.clone(), &self.settings).unwrap()
    }

    /// One run of the scheduler.
    pub async fn schedule(&self) {
        let scheduler = self.scheduler();
        scheduler.tick(&CancellationToken::new()).await.unwrap();
    }

    /// Starts the scheduler.
    pub fn start_scheduler(&self) {
        tokio::spawn(self.scheduler().run(self.stop.clone()));
    }

    /// Starts everything that the program runs.
    pub async fn run(&self, cases: Arc<dyn CaseApi>) {
        self.publish().await;
        self.consume_events();
        self.start_worker(cases);
        self.notify();
        self.start_scheduler();
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        media: Option<&str>,
        body: Vec<u8>,
    ) -> (StatusCode, Value) {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(media) = media {
            request = request.header("content-type", media);
        }
        let request = request.body(Body::from(body)).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub async fn post_zip(&self, archive: Vec<u8>) -> (StatusCode, Value) {
        let path = "/file-jobs?merchant_id=m-1";
        self.call(Method::POST, path, Some("application/zip"), archive)
            .await
    }

    pub async fn post_json(&self, body: &Value) -> (StatusCode, Value) {
        let (path, media) = ("/file-jobs", Some("application/json"));
        self.call(Method::POST, path, media, body.to_string().into())
            .await
    }

    /// Submits rows with these files; returns the job's id.
    pub async fn submit(&self, rows: &[&[&str]]) -> Uuid {
        let (status, answer) = self.post_zip(job_archive(rows)).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        answer["file_job_id"].as_str().unwrap().parse().unwrap()
    }

    pub async fn get(&self, job: Uuid) -> Value {
        let path = format!("/file-jobs/{job}");
        let (status, view) = self.call(Method::GET, &path, None, Vec::new()).await;
        assert_eq!(status, StatusCode::OK, "{view}");
        view
    }

    pub async fn retry(&self, job: Uuid, query: &str) -> (StatusCode, Value) {
        let path = format!("/file-jobs/{job}/retry{query}");
        self.call(Method::POST, &path, None, Vec::new()).await
    }

    /// Waits until the job's view meets the condition; returns the view.
    pub async fn wait_until(
        &self,
        job: Uuid,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        within(DEADLINE, what, async || {
            let view = self.get(job).await;
            if wanted(&view) { Ok(view) } else { Err(view) }
        })
        .await
    }

    /// Waits until every artifact was tried at least once.
    pub async fn wait_until_tried(&self, job: Uuid) -> Value {
        self.wait_until(job, "everything was tried", |view| view["pending"] == 0)
            .await
    }

    pub async fn scalar<T>(&self, sql: &'static str) -> T
    where
        T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub async fn execute(&self, sql: &'static str) -> u64 {
        let done = sqlx::query(sql).execute(&self.pool).await.unwrap();
        done.rows_affected()
    }

    /// Makes everything that waits for a retry due now.
    pub async fn make_due(&self) {
        let sql = "update evidence.file_job_artifact set next_retry_at = now() where is_retryable";
        self.execute(sql).await;
    }

    /// All files in the store.
    pub fn stored_files(&self) -> Vec<std::path::PathBuf> {
        fn walk(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.dir.path(), &mut found);
        found
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The one artifact of a job with one row and one file.
pub fn only_artifact(view: &Value) -> &Value {
    &view["rows"][0]["artifacts"][0]
}

/// Fast settings: leases of half a second, a scheduler interval of 100 ms.
pub fn settings(change: Value) -> Settings {
    let mut all = json!({
        "concurrency": 8,
        "case_api": { "url": "", "token": "", "timeout": 2, "look_up": false },
        "retry": { "max_attempts": 3, "backoff": {
            "strategy": "exponential", "initial_delay": "5m", "multiplier": 2, "max_delay": "60m", "jitter_pct": 0.2 } },
        "scheduler": { "batch_size_rows": 200, "sleep_between_batches": 0.05, "interval": 0.1 },
        "n2": { "force_after": "24h", "mark_remaining_permanent": true, "when_no_retry": "send" },
        "lease": { "seconds": 0.5 },
        "notify": { "url": "", "secret": "", "allow_private": false, "timeout": 5,
                    "smtp_url": "", "smtp_from": "", "smtp_to": "" },
        "ingest": { "max_archive": "1GiB", "max_unpacked": "2GiB", "max_file": "1GiB", "max_entries": 10000,
                    "max_ratio": 200, "timeout": "5m" },
        "breaker": { "threshold": 100000, "open_for": "" },
    });
    merge(&mut all, change);
    serde_json::from_value(all).unwrap()
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (name, value) in change {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

/// Retries after a few milliseconds.
pub fn fast_retries() -> Value {
    json!({ "retry": { "backoff": { "initial_delay": 0.02, "max_delay": 0.05 } } })
}

pub fn simulated_cases(rules: Value) -> Arc<SimulatedCaseApi> {
    let rules = serde_json::from_value(rules).unwrap();
    Arc::new(SimulatedCaseApi::new(FaultScript::new(rules)))
}

/// A client of the simulated Case API over a real socket.
pub async fn behind_http(cases: &Arc<SimulatedCaseApi>) -> Arc<dyn CaseApi> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = routes(Arc::clone(cases));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    http_cases(&format!("http://{address}"), Duration::from_secs(2))
}

pub fn http_cases(url: &str, timeout: Duration) -> Arc<dyn CaseApi> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let endpoint = Endpoint {
        url: url::Url::parse(url).unwrap(),
        token: None,
        timeout,
    };
    Arc::new(HttpCases::new(endpoint).unwrap())
}

/// An archive with these entries.
pub fn zip_archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in entries {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A manifest with one case for each row.
pub fn manifest(rows: &[&[&str]]) -> String {
    let mut text = "case_id,reference,files\n".to_owned();
    for (n, files) in rows.iter().enumerate() {
        let case = Uuid::from_u128(0xca5e_0000 + n as u128);
        text.push_str(&format!("{case},R{n},{}\n", files.join(";")));
    }
    text
}

/// An archive with a manifest and the files that it names.
pub fn job_archive(rows: &[&[&str]]) -> Vec<u8> {
    let manifest = manifest(rows);
    let contents: Vec<(&str, Vec<u8>)> = rows
        .iter()
        .flat_map(|files| files.iter())
        .map(|name| (*name, format!("content of {name}").into_bytes()))
        .collect();
    let mut entries: Vec<(&str, &[u8])> = vec![("manifest.csv", manifest.as_bytes())];
    entries.extend(
        contents
            .iter()
            .map(|(name, bytes)| (*name, bytes.as_slice())),
    );
    zip_archive(&entries)
}
