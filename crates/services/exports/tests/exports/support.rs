//! The fixture: a database, a store, the API, and workers on demand.

use std::{path::PathBuf, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::FromRef,
    http::{Method, Request, StatusCode},
};
use http_body_util::BodyExt;
use postrider::{breaker::Breakers, migrate::Migrator};
use postrider_blob::{Settings as StoreSettings, Store};
use postrider_exports::{Exports, Settings, cleaning, worker};
pub use postrider_testkit::within;
use postrider_testkit::{
    S3Server, TestDb,
    s3::{ACCESS_KEY_ID, BUCKET, SECRET_ACCESS_KEY},
};
use postrider_web::{MiddlewareOptions, with_middleware};
use serde_json::{Value, json};
use sqlx::PgPool;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Deadline of every wait; generous, because the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(300);

#[derive(Clone)]
struct AppState(Exports);

impl FromRef<AppState> for Exports {
    fn from_ref(state: &AppState) -> Self {
        state.0.clone()
    }
}

pub struct Fixture {
    pub db: TestDb,
    pub dir: TempDir,
    pub pool: PgPool,
    pub store: Store,
    router: Router,
    pub stop: CancellationToken,
}

impl Fixture {
    /// With a directory as its store.
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreSettings::directory(dir.path())
            .open(dir.path())
            .unwrap();
        Self::with(dir, store).await
    }

    /// With a bucket as its store.
    pub async fn with_s3(server: &S3Server) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut settings = StoreSettings::directory(std::path::Path::new("/"));
        settings.url = Some(format!("s3://{BUCKET}").parse().unwrap());
        settings.endpoint = Some(server.endpoint().parse().unwrap());
        settings.access_key_id = Some(ACCESS_KEY_ID.to_owned());
        settings.secret_access_key = Some(SECRET_ACCESS_KEY.to_owned());
        let store = settings.open(std::path::Path::new("/")).unwrap();
        Self::with(tempfile::tempdir().unwrap(), store).await
    }

    async fn with(dir: TempDir, store: Store) -> Self {
        let db = TestDb::from_template("exports", async |connection| {
            Migrator::new([postrider::migrations(), postrider_exports::migrations()])
                .run(connection)
                .await
                .map(drop)
        })
        .await;
        let pool = db.pool_of(10);
        let stop = CancellationToken::new();
        let exports = Exports::start(pool.clone(), store.clone(), stop.clone());
        let (router, _) = postrider_exports::routes::<AppState>().split_for_parts();
        let router = router.with_state(AppState(exports));
        Self {
            db,
            dir,
            pool,
            store,
            router: with_middleware(router, MiddlewareOptions::default()),
            stop,
        }
    }

    /// Starts a worker with these settings; it stops with the fixture.
    pub fn start_worker(&self, settings: &Settings) {
        self.start_worker_until(settings, self.stop.clone());
    }

    pub fn start_worker_until(
        &self,
        settings: &Settings,
        stop: CancellationToken,
    ) -> tokio::task::JoinHandle<postrider::Result<()>> {
        let common = postrider::breaker::Settings::default();
        let breakers = Breakers::new(common);
        let worker = worker::worker(
            self.pool.clone(),
            self.store.clone(),
            settings,
            &breakers,
            settings.breaker.over(common),
        );
        tokio::spawn(worker.unwrap().run(stop))
    }

    pub async fn finalize(&self) {
        cleaning::finalize_once(self.pool.clone()).await.unwrap();
    }

    pub async fn send(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, bytes.to_vec())
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        self.call_with_key(method, path, body.map(|body| body.to_string()), None)
            .await
    }

    pub async fn call_with_key(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
        key: Option<&str>,
    ) -> (StatusCode, Value) {
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let body = body.map_or_else(Body::empty, Body::from);
        let (status, bytes) = self.send(request.body(body).unwrap()).await;
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub async fn post(&self, inputs: Value) -> (StatusCode, Value) {
        let body = json!({ "inputs": inputs });
        self.call(Method::POST, "/jobs", Some(body)).await
    }

    /// Submits a job; returns its id.
    pub async fn submit(&self, inputs: Value) -> String {
        let (status, answer) = self.post(inputs).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        assert_eq!(answer["status"], "SUBMITTED");
        answer["jobId"].as_str().unwrap().to_owned()
    }

    pub async fn get(&self, job: &str) -> Value {
        let (status, view) = self.call(Method::GET, &format!("/jobs/{job}"), None).await;
        assert_eq!(status, StatusCode::OK, "{view}");
        let sum = ["pending", "running", "done", "failed"]
            .map(|name| view[name].as_i64().unwrap())
            .iter()
            .sum::<i64>();
        assert_eq!(sum, view["total"].as_i64().unwrap(), "{view}");
        view
    }

    pub async fn action(&self, job: &str, verb: &str) -> (StatusCode, Value) {
        self.call(Method::POST, &format!("/jobs/{job}/{verb}"), None)
            .await
    }

    /// Waits until the job has this status; returns its view.
    pub async fn wait_for_status(&self, job: &str, status: &str) -> Value {
        within(DEADLINE, &format!("{job} is {status}"), async || {
            let view = self.get(job).await;
            if view["status"] == status {
                Ok(view)
            } else {
                Err((
                    view["status"].clone(),
                    view["pending"].clone(),
                    view["running"].clone(),
                    view["errorMessage"].clone(),
                ))
            }
        })
        .await
    }

    pub async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// The path of a file in the directory.
    pub fn file(&self, address: &str) -> PathBuf {
        url::Url::parse(address).unwrap().to_file_path().unwrap()
    }

    /// Incomplete files in the directory.
    pub fn temporaries(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.dir.path().to_owned()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if path.to_string_lossy().contains('#') {
                    found.push(path);
                }
            }
        }
        found
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn input(index: &str, date: u32, indicator: &str) -> Value {
    json!({ "indexKey": index, "effectiveDate": date, "asofindicator": indicator })
}

/// Inputs with distinct keys and an old date.
pub fn inputs(count: usize) -> Value {
    (0..count)
        .map(|n| input(&format!("K{n:05}"), 20_240_202, "CLS"))
        .collect()
}

/// A source with rows for every key.
pub const ANY_KEY: &str = "select $1::text as key, $2::date as day, n, repeat('x', 40) as filler from generate_series(1, 20) n";

/// Fast settings: delays of 20 ms, leases of a second.
pub fn settings(change: Value) -> Settings {
    let mut all = json!({
        "concurrency": 4,
        "source": { "url": "", "query": ANY_KEY, "allow_empty": false },
        "worker": { "poll": { "batch_size": 50 }, "lease": { "seconds": 1 } },
        "retry": { "max_attempts": 3, "base_delay_ms": 20 },
        "file": { "gzip": false, "reuse": { "enabled": true, "days": 7 } },
        "finalizer": { "interval_ms": 200 },
        "breaker": { "threshold": 1000, "open_for": "" },
    });
    merge(&mut all, &change);
    serde_json::from_value(all).unwrap()
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (name, value) in change {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

/// Settings for a test's own source: the table `source(key, day, asof, n)`.
pub fn own_source() -> Value {
    json!({ "source": { "query": "select key, n from source where key = $1 and day = $2 and asof = $3 order by n" } })
}
