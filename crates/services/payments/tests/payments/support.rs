//! Test fixture: two sides, a transport between them, the API on a real socket, and tasks that can be killed.

use std::sync::Arc;
use std::time::Duration;

use axum::{extract::FromRef, http::Method};
use postrider::{
    WorkerPool,
    breaker::{self, Breakers},
    migrate::Migrator,
    transport::Transport,
};
use postrider_payments::{
    Payments, Settings, requests,
    wallet::{
        self, Wallet,
        callback::{Callback, HttpCallback},
        consumer::PaymentConsumer,
    },
};
pub use postrider_testkit::eventually;
use postrider_testkit::{Proxy, TestDb, within};
use postrider_transports::PostgresTransport;
use postrider_web::{MiddlewareOptions, http_client::Endpoint, with_middleware};
use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::transport::FaultyTransport;

/// Long enough for two busy cores.
pub const DEADLINE: Duration = Duration::from_secs(90);

#[derive(Clone)]
struct AppState(Payments);

impl FromRef<AppState> for Payments {
    fn from_ref(state: &AppState) -> Self {
        state.0.clone()
    }
}

pub struct Fixture {
    _dbs: Vec<TestDb>,
    pub settings: Settings,
    pub pool: PgPool,
    /// The wallet's own connections, possibly to another database.
    pub wallet: PgPool,
    pub transport: Arc<FaultyTransport>,
    pub base: String,
    client: reqwest::Client,
    stop: CancellationToken,
}

async fn database(template: &str) -> TestDb {
    TestDb::from_template(template, async |connection| {
        let engine = postrider::migrations();
        let wallet = postrider_payments::wallet_migrations();
        let sets = match template {
            "wallet" => vec![engine, wallet],
            _ => vec![engine, postrider_payments::migrations(), wallet],
        };
        Migrator::new(sets).run(connection).await.map(drop)
    })
    .await
}

impl Fixture {
    /// Both sides in one database.
    pub async fn new(change: Value) -> Self {
        let db = database("payments").await;
        let (pool, wallet) = (db.pool_of(12), db.pool_of(8));
        Self::on(vec![db], pool, wallet, change).await
    }

    /// Each side in its own database.
    pub async fn with_separate_wallet(change: Value) -> Self {
        let (db, other) = (database("payments").await, database("wallet").await);
        let (pool, wallet) = (db.pool_of(12), other.pool_of(8));
        Self::on(vec![db, other], pool, wallet, change).await
    }

    /// Both sides in one database; the requests' side connects to it through a proxy.
    pub async fn behind_proxy(change: Value) -> (Self, Proxy) {
        let db = database("payments").await;
        let proxy = Proxy::for_database(&db).await;
        let pool = PgPoolOptions::new()
            .max_connections(12)
            // A ping would find out that a connection is silent before a statement is lost on it.
            .test_before_acquire(false)
            .connect_lazy_with(proxy.connect_options());
        let wallet = db.pool_of(8);
        (Self::on(vec![db], pool, wallet, change).await, proxy)
    }

    async fn on(dbs: Vec<TestDb>, pool: PgPool, wallet: PgPool, change: Value) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings = settings(change);
        let wallet_side = Wallet::new(wallet.clone(), settings.callback.timeout);
        let payments = Payments::start(pool.clone(), wallet_side, settings.reconcile);
        let (router, _) = postrider_payments::routes::<AppState>().split_for_parts();
        let router = with_middleware(
            router.with_state(AppState(payments)),
            MiddlewareOptions::default(),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let transport = Arc::new(PostgresTransport::new(pool.clone()).unwrap());
        Self {
            _dbs: dbs,
            settings,
            pool,
            wallet,
            transport: FaultyTransport::over(transport),
            base,
            client: reqwest::Client::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Starts all tasks; they stop with the fixture.
    pub fn start_workers(&self) {
        self.start_publisher(&self.stop);
        self.start_wallet(&self.stop);
    }

    pub fn start_publisher(&self, stop: &CancellationToken) {
        let transport: Arc<dyn Transport> = self.transport.clone();
        let breakers = Breakers::new(breaker::Settings::default());
        let (pool, settings) = (self.pool.clone(), self.settings.clone());
        let worker_pool = WorkerPool::new(&pool);
        let publisher = requests::worker::run(
            pool,
            settings,
            transport,
            breakers,
            worker_pool,
            stop.clone(),
        );
        tokio::spawn(stop.clone().run_until_cancelled_owned(publisher));
    }

    /// `stop` drops the tasks in the middle of their work, like a kill.
    pub fn start_wallet(&self, stop: &CancellationToken) {
        let callback = self.callback();
        let wallet = Wallet::new(self.wallet.clone(), self.settings.callback.timeout);
        let transport: Arc<dyn Transport> = self.transport.clone();
        let consumer =
            PaymentConsumer::new(transport, wallet, &self.settings, Arc::clone(&callback)).unwrap();
        let breakers = Breakers::new(breaker::Settings::default());
        let callbacks = wallet::worker::worker(
            self.wallet.clone(),
            &self.settings,
            callback,
            &breakers,
            self.settings.breaker.over(breaker::Settings::default()),
        )
        .unwrap();
        let (consuming, calling_back) = (consumer.run(stop.clone()), callbacks.run(stop.clone()));
        tokio::spawn(stop.clone().run_until_cancelled_owned(consuming));
        tokio::spawn(stop.clone().run_until_cancelled_owned(calling_back));
    }

    fn callback(&self) -> Arc<dyn Callback> {
        let own = url::Url::parse(&self.base).unwrap();
        let endpoint = Endpoint {
            url: self.settings.callback.url.clone().unwrap_or(own),
            token: None,
            timeout: self.settings.callback.timeout,
        };
        Arc::new(HttpCallback::new(endpoint).unwrap())
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or_default())
    }

    pub async fn open(&self, account: &str, balance: &str) {
        let body = json!({ "account_id": account, "currency": "USD", "balance": balance });
        let (status, view) = self
            .call(Method::POST, "/wallet/accounts", Some(body))
            .await;
        assert_eq!(status, 201, "{view}");
    }

    pub async fn pay(&self, uuid: Uuid, account: &str, amount: &str) {
        let (status, view) = self.post(payment(uuid, account, amount)).await;
        assert_eq!(status, 202, "{view}");
    }

    pub async fn post(&self, payment: Value) -> (u16, Value) {
        self.call(Method::POST, "/payments", Some(payment)).await
    }

    pub async fn get(&self, uuid: Uuid) -> Value {
        let (status, view) = self
            .call(Method::GET, &format!("/payments/{uuid}"), None)
            .await;
        assert_eq!(status, 200, "{view}");
        view
    }

    pub async fn balance(&self, account: &str) -> String {
        let path = format!("/wallet/accounts/{account}");
        let (_, view) = self.call(Method::GET, &path, None).await;
        view["balance"].as_str().unwrap_or_default().to_owned()
    }

    /// Ignores the result.
    pub async fn try_reconcile(&self) {
        self.call(Method::POST, "/payments/reconcile", None).await;
    }

    pub async fn reconcile(&self) -> Value {
        let (status, report) = self.call(Method::POST, "/payments/reconcile", None).await;
        assert_eq!(status, 200, "{report}");
        report
    }

    /// Waits until the payment has this status and reason; returns the view.
    pub async fn wait_for_status(&self, uuid: Uuid, status: &str, reason: Option<&str>) -> Value {
        let what = format!("{uuid} is {status} {reason:?}");
        within(DEADLINE, &what, async || {
            let view = self.get(uuid).await;
            if view["status"] == status && view["reason"].as_str() == reason {
                Ok(view)
            } else {
                Err(view)
            }
        })
        .await
    }

    /// One number from the requests' database.
    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// One number from the wallet's database.
    pub async fn wallet_count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql)
            .fetch_one(&self.wallet)
            .await
            .unwrap()
    }

    pub async fn wallet_execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.wallet).await.unwrap();
    }

    /// Makes the database reject bookings for the account `broken`.
    pub async fn break_account(&self) {
        self.wallet_execute(
            "create function wallet.broken() returns trigger language plpgsql as $$
             begin if new.account_id = 'broken' then raise exception 'booking refused'; end if; return new; end $$;
             create trigger broken before insert on wallet.entry for each row execute function wallet.broken()",
        )
        .await;
    }

    pub async fn repair_account(&self) {
        self.wallet_execute("drop trigger broken on wallet.entry")
            .await;
    }

    /// Asserts the invariants of both sides.
    pub async fn audit(&self) {
        let wrong = "select count(*) from wallet.account a where balance < 0 or balance <>
            (select coalesce(sum(amount), 0) from wallet.entry e where e.account_id = a.account_id)";
        assert_eq!(
            self.wallet_count(wrong).await,
            0,
            "balances equal the sum of entries"
        );
        let sum = "select count(*) from (select uuid from wallet.entry group by uuid having sum(amount) <> 0) x";
        assert_eq!(self.wallet_count(sum).await, 0, "entries sum to zero");
        let twice = "select count(*) from
            (select uuid from wallet.entry where kind = 'payment' group by uuid having count(*) <> 2) x";
        assert_eq!(
            self.wallet_count(twice).await,
            0,
            "no uuid is deducted twice"
        );
        let inbox = "select count(*) from wallet.inbox i where (i.status = 'SUCCEED') <>
            exists (select from wallet.entry e where e.uuid = i.uuid)";
        assert_eq!(self.wallet_count(inbox).await, 0, "inbox and entries agree");
        let settled: Vec<(Uuid, String)> =
            sqlx::query_as("select uuid, status from payments.request where status <> 'PENDING'")
                .fetch_all(&self.pool)
                .await
                .unwrap();
        let paid: Vec<Uuid> =
            sqlx::query_scalar("select uuid from wallet.inbox where status = 'SUCCEED'")
                .fetch_all(&self.wallet)
                .await
                .unwrap();
        let paid: std::collections::HashSet<Uuid> = paid.into_iter().collect();
        for (uuid, status) in settled {
            assert_eq!(
                status == "SUCCEED",
                paid.contains(&uuid),
                "{uuid} is {status}"
            );
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn payment(uuid: Uuid, account: &str, amount: &str) -> Value {
    json!({ "uuid": uuid, "account_id": account, "amount": amount, "currency": "USD" })
}

/// A URL on which nothing listens: its port was free a moment ago.
pub fn unreachable_url() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", free.local_addr().unwrap())
}

/// Fast settings: backoff of 50 ms, leases of one second, reconciliation regardless of age.
pub fn settings(change: Value) -> Settings {
    let mut all = json!({
        "delivery": "chance", "retention": "30d",
        "publish": { "max_attempts": 5, "backoff": [0.05] },
        "lease": { "seconds": 1 },
        "wallet": { "database_url": "", "pool_size": 10, "max_attempts": 3, "batch": 200 },
        "callback": { "url": "", "token": "", "timeout": 2, "concurrency": 16 },
        "reconcile": { "every": "", "after": 0 },
        "breaker": { "threshold": 1000, "open_for": "" },
    });
    merge(&mut all, change);
    serde_json::from_value(all).unwrap()
}

fn merge(all: &mut Value, change: Value) {
    match change {
        Value::Object(change) => {
            for (name, value) in change {
                merge(&mut all[name], value);
            }
        }
        value => *all = value,
    }
}
