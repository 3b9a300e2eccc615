//! Test fixture: a database, the API, a broker, and workers on demand.

use std::sync::Arc;
use std::time::Duration;

use axum::{
    Router,
    body::Body,
    extract::FromRef,
    http::{Method, Request, StatusCode},
};
use http_body_util::BodyExt;
use postrider::{breaker::Breakers, migrate::Migrator};
use postrider_orders::{
    Ordering, Orders, Settings,
    broker::{Broker, HttpBroker},
    worker,
};
use postrider_sim::{
    FaultScript,
    broker::{SimulatedBroker, routes},
};
use postrider_testkit::TestDb;
pub use postrider_testkit::eventually;
use postrider_web::{MiddlewareOptions, http_client::Endpoint, with_middleware};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

#[derive(Clone)]
struct AppState(Orders);

impl FromRef<AppState> for Orders {
    fn from_ref(state: &AppState) -> Self {
        state.0.clone()
    }
}

pub struct Fixture {
    pub db: TestDb,
    pub pool: PgPool,
    router: Router,
    stop: CancellationToken,
}

impl Fixture {
    pub async fn new() -> Self {
        Self::with_ordering(Ordering::None).await
    }

    /// With orders that are sent one after another.
    pub async fn with_ordering(ordering: Ordering) -> Self {
        let db = TestDb::from_template("orders", async |connection| {
            Migrator::new([postrider::migrations(), postrider_orders::migrations()])
                .run(connection)
                .await
                .map(drop)
        })
        .await;
        let pool = db.pool_of(12);
        let orders = Orders::start(pool.clone(), ordering);
        let (router, _) = postrider_orders::routes::<AppState>().split_for_parts();
        let router = router.with_state(AppState(orders));
        Self {
            db,
            pool,
            router: with_middleware(router, MiddlewareOptions::default()),
            stop: CancellationToken::new(),
        }
    }

    /// Starts a worker with these settings and this broker; it stops with the fixture.
    pub fn start_workers(&self, settings: &Settings, broker: Arc<dyn Broker>) {
        let common = postrider::breaker::Settings::default();
        let breakers = Breakers::new(common);
        let breaker = settings.breaker.over(common);
        let worker =
            worker::worker(self.pool.clone(), settings, broker, &breakers, breaker).unwrap();
        tokio::spawn(worker.run(self.stop.clone()));
    }

    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let text = body.map(|body| body.to_string());
        self.raw(method, path, text).await
    }

    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> (StatusCode, Value) {
        let mut request = Request::builder().method(method).uri(path);
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(body.map_or_else(Body::empty, Body::from))
            .unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    pub async fn post(&self, order: Value) -> (StatusCode, Value) {
        self.call(Method::POST, "/do/order", Some(order)).await
    }

    pub async fn get(&self, key: &str) -> Value {
        let (status, view) = self
            .call(Method::GET, &format!("/do/order/{key}"), None)
            .await;
        assert_eq!(status, StatusCode::OK, "{view}");
        view
    }

    /// Waits until the outbox row has this status; returns the view.
    pub async fn wait_for_status(&self, key: &str, status: &str) -> Value {
        let what = format!("{key} is {status}");
        eventually(&what, async || {
            let view = self.get(key).await;
            if view["outbox"]["status"] == status {
                Ok(view)
            } else {
                Err(view)
            }
        })
        .await
    }

    pub async fn execute(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.pool).await.unwrap();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn order(key: &str) -> Value {
    json!({
        "version": "1.1", "idempotency_key": key, "account": "A1", "symbol": "ACME", "side": "buy", "quantity": "10",
        "type": "limit", "limit_price": "12.50", "time_in_force": "day", "expires_at": null, "tags": {}
    })
}

pub fn order_for_symbol(key: &str, symbol: &str) -> Value {
    let mut order = order(key);
    order["symbol"] = json!(symbol);
    order
}

/// Fast settings: backoff of 50 ms, leases of half a second.
pub fn settings(change: Value) -> Settings {
    let mut all = json!({
        "broker": { "url": "", "token": "", "timeout": 0.5, "rate": "", "burst": 1 },
        "ordering": "none", "concurrency": 4, "max_attempts": 6, "backoff": [0.05], "lease": { "seconds": 0.5 }, "retention": "30d",
        "breaker": { "threshold": 1000, "open_for": "" },
    });
    for (name, value) in change.as_object().unwrap() {
        all[name] = value.clone();
    }
    serde_json::from_value(all).unwrap()
}

pub fn paper(rules: Value) -> Arc<SimulatedBroker> {
    let rules = serde_json::from_value(rules).unwrap();
    Arc::new(SimulatedBroker::new(FaultScript::new(rules)))
}

/// The simulated broker behind a real socket, and the adapter that speaks to it.
pub async fn over_http(broker: &Arc<SimulatedBroker>) -> Arc<dyn Broker> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = routes(Arc::clone(broker));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    http_broker(&format!("http://{address}"))
}

pub fn http_broker(url: &str) -> Arc<dyn Broker> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let endpoint = Endpoint {
        url: url::Url::parse(url).unwrap(),
        token: None,
        timeout: Duration::from_millis(500),
    };
    Arc::new(HttpBroker::new(endpoint).unwrap())
}
