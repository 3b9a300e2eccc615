//! The test fixture: a database, an object store, the API, and workers with stages on demand.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{FromRef, State},
    http::{HeaderMap, Method, Request, StatusCode, header},
    response::IntoResponse,
    routing::post,
};
use http_body_util::BodyExt;
use postrider::{breaker::Breakers, migrate::Migrator};
use postrider_blob::Store;
use postrider_protocols::{
    Protocols, Settings,
    document::{self, Documents, PdfReader},
    model::Step,
    settings::Service,
    stage::{BuiltInExtraction, BuiltInGrounding, HttpStage, Stage, vocabulary::Vocabulary},
    worker::{self, Stages},
};
pub use postrider_testkit::eventually;
use postrider_testkit::{TestDb, builders::data_dir};
use postrider_web::{MiddlewareOptions, with_middleware};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

pub const SHORT: &str = "Inclusion criteria:\n1. Age >= 18 years\n2. Type 2 diabetes\n\nExclusion criteria:\n1. Pregnancy\n";

#[derive(Clone)]
struct AppState(Protocols);

impl FromRef<AppState> for Protocols {
    fn from_ref(state: &AppState) -> Self {
        state.0.clone()
    }
}

pub struct Fixture {
    _db: TestDb,
    _dir: tempfile::TempDir,
    pub pool: PgPool,
    pub store: Store,
    router: Router,
    stop: CancellationToken,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with(&settings(json!({}))).await
    }

    pub async fn with(settings: &Settings) -> Self {
        let db = TestDb::from_template("protocols", async |connection| {
            Migrator::new([postrider::migrations(), postrider_protocols::migrations()])
                .run(connection)
                .await
                .map(drop)
        })
        .await;
        let dir = data_dir();
        let store = postrider_blob::Settings::directory(dir.path())
            .open(dir.path())
            .unwrap();
        let pool = db.pool_of(12);
        let protocols = Protocols::start(pool.clone(), store.clone(), settings);
        let (router, _) = postrider_protocols::routes::<AppState>().split_for_parts();
        let router = router.with_state(AppState(protocols));
        Self {
            _db: db,
            _dir: dir,
            pool,
            store,
            router: with_middleware(router, MiddlewareOptions::default()),
            stop: CancellationToken::new(),
        }
    }

    /// Starts a worker with the built-in stages, except where the settings have a URL; it stops with the fixture.
    pub fn start_worker(&self, settings: &Settings) -> Breakers {
        self.start_worker_until(settings, self.stop.clone())
    }

    pub fn start_worker_until(&self, settings: &Settings, stop: CancellationToken) -> Breakers {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let common = postrider::breaker::Settings::default();
        let breaker = settings.breaker.over(common);
        let breakers = Breakers::new(common);
        let documents = Documents::new(
            self.store.clone(),
            breakers.get_with(document::DEPENDENCY, breaker),
            reader(settings),
        );
        let remote = |step, service: &Service| -> Option<Arc<dyn Stage>> {
            let endpoint = service.endpoint(settings.stages.timeout)?;
            Some(Arc::new(HttpStage::new(step, endpoint).unwrap()))
        };
        let stages = Stages {
            extraction: remote(Step::Extraction, &settings.stages.extraction)
                .unwrap_or_else(|| Arc::new(BuiltInExtraction)),
            grounding: remote(Step::Grounding, &settings.stages.grounding).unwrap_or_else(|| {
                Arc::new(BuiltInGrounding::new(Vocabulary::built_in().unwrap()))
            }),
        };
        let pool = self.pool.clone();
        let worker = worker::worker(pool, settings, documents, stages, &breakers, breaker).unwrap();
        tokio::spawn(worker.run(stop));
        breakers
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let content = body.map(|body| ("application/json", body.to_string().into_bytes()));
        self.raw(method, path, content).await
    }

    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        content: Option<(&str, Vec<u8>)>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some((media, _)) = &content {
            request = request.header(header::CONTENT_TYPE, *media);
        }
        let body = content.map_or_else(Body::empty, |(_, bytes)| Body::from(bytes));
        let request = request.body(body).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            headers,
            body: body.to_vec(),
        }
    }

    pub async fn upload(&self, media: &str, content: impl Into<Vec<u8>>) -> String {
        let answer = self
            .raw(
                Method::POST,
                "/protocols?title=A%20trial",
                Some((media, content.into())),
            )
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub async fn upload_text(&self, text: &str) -> String {
        self.upload("text/plain", text).await
    }

    pub async fn get(&self, id: &str) -> Value {
        let answer = self
            .call(Method::GET, &format!("/protocols/{id}"), None)
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        answer.json()
    }

    pub async fn retry(&self, id: &str) -> Answer {
        self.call(Method::POST, &format!("/protocols/{id}/retry"), None)
            .await
    }

    pub async fn review(&self, id: &str, body: Value) -> Answer {
        self.call(Method::POST, &format!("/protocols/{id}/review"), Some(body))
            .await
    }

    /// Waits until the protocol has this status; returns the protocol.
    pub async fn wait_for_status(&self, id: &str, status: &str) -> Value {
        let what = format!("{id} is {status}");
        eventually(&what, async || {
            let view = self.get(id).await;
            if view["status"] == status {
                Ok(view)
            } else {
                Err(view)
            }
        })
        .await
    }

    /// The events of a protocol: type, try, status, retry_count.
    pub async fn events(&self, id: &str) -> Vec<(String, i32, String, i32)> {
        sqlx::query_as(
            "select event_type, try, status, retry_count from protocols.outbox where protocol_id = $1::uuid order by id",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await
        .unwrap()
    }

    /// Waits until no event is waiting or leased.
    pub async fn wait_until_idle(&self) {
        eventually("every event is finished", async || {
            let left: i64 = self
                .query_number("select count(*) from protocols.outbox where finished_at is null")
                .await;
            if left == 0 { Ok(()) } else { Err(left) }
        })
        .await;
    }

    pub async fn query_number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.pool).await.unwrap();
    }

    /// Runs a statement without the trigger that guards the state diagram.
    pub async fn execute_unguarded(&self, sql: &'static str) {
        let mut tx = self.pool.begin().await.unwrap();
        sqlx::query("alter table protocols.protocol disable trigger guard_status")
            .execute(&mut *tx)
            .await
            .unwrap();
        sqlx::query(sql).execute(&mut *tx).await.unwrap();
        sqlx::query("alter table protocols.protocol enable trigger guard_status")
            .execute(&mut *tx)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Asserts that the doctor's checks find nothing.
    pub async fn assert_invariants(&self) {
        for check in postrider_protocols::CHECKS {
            let found: Vec<String> = sqlx::query_scalar(check.query)
                .fetch_all(&self.pool)
                .await
                .unwrap();
            assert_eq!(found, Vec::<String>::new(), "{}", check.name);
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Fast settings: retries after 50 ms, leases of a second, a breaker that never opens.
pub fn settings(change: Value) -> Settings {
    let mut all = json!({
        "max_retries": 3, "concurrency": 4, "max_size": "4MiB", "archive_after": "7d", "retention": "30d",
        "vocabulary": "", "retry": { "initial_delay": 0.05 },
        "stages": { "timeout": "5s", "patience": "1h", "extraction": { "url": "", "token": "" },
                    "grounding": { "url": "", "token": "" } },
        "pdf": { "timeout": "10s", "memory": "1GiB" },
        "lease": { "seconds": 1 },
        "breaker": { "threshold": 100_000, "open_for": "" },
    });
    for (name, value) in change.as_object().unwrap() {
        all[name] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

/// Settings with these stage services.
pub fn with_stages(extraction: &str, grounding: &str, change: Value) -> Settings {
    let mut change = change;
    change["stages"] = json!({ "timeout": "2s", "patience": "1h",
        "extraction": { "url": extraction, "token": "" }, "grounding": { "url": grounding, "token": "" } });
    settings(change)
}

fn reader(settings: &Settings) -> PdfReader {
    let args = ["support::pdf_reader", "--exact", "--ignored", "--nocapture"];
    PdfReader::this_program(&args, settings.pdf).unwrap()
}

#[test]
#[ignore = "the program that other tests start to read a PDF"]
fn pdf_reader() {
    document::run_pdf_child().unwrap();
}

/// The response of a stage service.
pub struct Reply {
    status: u16,
    retry_after: Option<u64>,
    delay: Duration,
    body: Value,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            retry_after: None,
            delay: Duration::ZERO,
            body: json!({ "detail": "scripted" }),
        }
    }

    pub fn criteria() -> Self {
        let body = json!({ "criteria": [
            { "kind": "inclusion", "text": "Adults", "terms": [{ "text": "Adults", "code": "X1", "label": "Adult" }] },
            { "kind": "exclusion", "text": "Pregnancy" },
        ] });
        Self {
            body,
            ..Self::status(200)
        }
    }

    pub fn body(mut self, body: Value) -> Self {
        self.body = body;
        self
    }

    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

type Behaviour = dyn Fn(usize, &Value) -> Reply + Send + Sync;

/// A stage service in this process, and the calls it got.
#[derive(Clone)]
pub struct StageServer {
    calls: Arc<Mutex<Vec<Value>>>,
    behaviour: Arc<Behaviour>,
}

impl StageServer {
    /// Starts a server that answers by this function; the first call has number 0. Returns its URL, too.
    pub async fn start(
        behaviour: impl Fn(usize, &Value) -> Reply + Send + Sync + 'static,
    ) -> (Self, String) {
        let server = Self {
            calls: Arc::default(),
            behaviour: Arc::new(behaviour),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/stage", listener.local_addr().unwrap());
        let routes = Router::new()
            .route("/stage", post(answer))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (server, url)
    }

    pub fn calls(&self) -> Vec<Value> {
        self.calls.lock().unwrap().clone()
    }

    /// The number of calls by protocol and try.
    pub fn counts(&self) -> HashMap<(String, i64), usize> {
        let mut counts = HashMap::new();
        for call in self.calls() {
            let id = call["protocol_id"].as_str().unwrap().to_owned();
            *counts
                .entry((id, call["try"].as_i64().unwrap()))
                .or_default() += 1;
        }
        counts
    }
}

async fn answer(
    State(server): State<StageServer>,
    axum::Json(call): axum::Json<Value>,
) -> impl IntoResponse {
    let number = {
        let mut calls = server.calls.lock().unwrap();
        calls.push(call.clone());
        calls.len() - 1
    };
    let reply = (server.behaviour)(number, &call);
    tokio::time::sleep(reply.delay).await;
    let mut headers = HeaderMap::new();
    if let Some(seconds) = reply.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    (
        StatusCode::from_u16(reply.status).unwrap(),
        headers,
        axum::Json(reply.body),
    )
}
