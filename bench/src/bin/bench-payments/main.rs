//! Payments: orchestrator and wallet over the Postgres transport, or a bare loop with the same statements and the same
//! HTTP call on the same number of connections.
//!
//! Both start with accepted, unpublished requests in their own database, and end when every request is settled. Both call
//! the same server: the routes of the service in this process.

mod bare;

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::extract::FromRef;
use postrider::WorkerPool;
use postrider::breaker::{self, Breakers};
use postrider::migrate::Migrator;
use postrider::transport::Transport;
use postrider_payments::wallet::Wallet;
use postrider_payments::wallet::callback::HttpCallback;
use postrider_payments::wallet::consumer::PaymentConsumer;
use postrider_payments::{Payments, Settings, requests};
use postrider_transports::PostgresTransport;
use postrider_web::{MiddlewareOptions, http_client::Endpoint, with_middleware};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio_util::sync::CancellationToken;

/// Connections to the database, and concurrent calls, of each.
const CONNECTIONS: u32 = 16;
const ACCOUNTS: i64 = 50;

const FILL: [&str; 4] = [
    "insert into wallet.account (account_id, currency, balance, opening)
     select 'acc-' || n, 'USD', 100000000, 100000000 from generate_series(0, $1 - 1) n",
    "insert into payments.request (uuid, account_id, amount, currency)
     select gen_random_uuid(), 'acc-' || (n % $1), 12.50, 'USD' from generate_series(1, $2) n",
    "insert into payments.outbox (uuid, payload)
     select uuid, jsonb_build_object('uuid', uuid, 'account_id', account_id, 'amount', amount::text, 'currency', currency)
     from payments.request where $1 > 0",
    "select count(*) from payments.request where status = 'PENDING'",
];

#[derive(Clone)]
struct AppState(Payments);

impl FromRef<AppState> for Payments {
    fn from_ref(state: &AppState) -> Self {
        state.0.clone()
    }
}

/// The allocator of the program, because services run in this process.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> Result<()> {
    // The HTTP client needs a TLS provider, although nothing uses TLS here.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let action = std::env::args().nth(1).context("the action is missing")?;
    let url = std::env::var("DATABASE_URL")?;
    let pool = pool(&url).await?;
    if action == "setup" {
        let migrator = Migrator::new([
            postrider::migrations(),
            postrider_payments::migrations(),
            postrider_payments::wallet_migrations(),
        ]);
        migrator.run(&mut *pool.acquire().await?).await?;
        return Ok(());
    }
    let count: i64 = std::env::var("BENCH_COUNT")?.parse()?;
    fill(&pool, count).await?;
    let settings = settings()?;
    let wallet_pool = self::pool(&url).await?;
    let wallet = Wallet::new(wallet_pool.clone(), settings.callback.timeout);
    let base = serve(&pool, &wallet, &settings).await?;
    write_event(
        &json!({ "event": "ready", "settings": format!("{CONNECTIONS} connections and concurrent calls") }),
    )?;
    std::io::stdin().read_line(&mut String::new())?;
    let begun = Instant::now();
    match action.as_str() {
        "ours" => ours(&pool, wallet, &settings, &base, count).await?,
        "bare" => bare::run(&pool, &wallet_pool, &base).await?,
        other => bail!("unknown action {other}"),
    }
    let seconds = begun.elapsed().as_secs_f64();
    check(&pool, count).await?;
    write_event(&json!({ "event": "done", "items": count, "seconds": seconds }))
}

async fn pool(url: &str) -> Result<PgPool> {
    Ok(PgPoolOptions::new()
        .min_connections(CONNECTIONS)
        .max_connections(CONNECTIONS)
        .test_before_acquire(false)
        .connect(url)
        .await?)
}

async fn fill(pool: &PgPool, count: i64) -> Result<()> {
    sqlx::query(FILL[0]).bind(ACCOUNTS).execute(pool).await?;
    sqlx::query(FILL[1])
        .bind(ACCOUNTS)
        .bind(count)
        .execute(pool)
        .await?;
    sqlx::query(FILL[2]).bind(count).execute(pool).await?;
    sqlx::raw_sql("analyze").execute(pool).await?;
    Ok(())
}

fn settings() -> Result<Settings> {
    Ok(serde_json::from_value(json!({
        "delivery": "chance", "retention": "30d",
        "publish": { "max_attempts": 5, "backoff": [1] },
        "lease": { "seconds": 30 },
        "wallet": { "database_url": "", "pool_size": CONNECTIONS, "max_attempts": 10, "batch": 200 },
        "callback": { "url": "", "token": "", "timeout": 10, "concurrency": CONNECTIONS },
        "reconcile": { "every": "", "after": 300 },
        "breaker": { "threshold": "", "open_for": "" },
    }))?)
}

async fn serve(pool: &PgPool, wallet: &Wallet, settings: &Settings) -> Result<String> {
    let payments = Payments::start(pool.clone(), wallet.clone(), settings.reconcile);
    let (router, _) = postrider_payments::routes::<AppState>().split_for_parts();
    let router = with_middleware(
        router.with_state(AppState(payments)),
        MiddlewareOptions::default(),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(base)
}

async fn ours(
    pool: &PgPool,
    wallet: Wallet,
    settings: &Settings,
    base: &str,
    count: i64,
) -> Result<()> {
    let stop = CancellationToken::new();
    let transport: Arc<dyn Transport> = Arc::new(PostgresTransport::new(pool.clone())?);
    let callback = HttpCallback::new(Endpoint {
        url: base.parse()?,
        token: None,
        timeout: settings.callback.timeout,
    })?;
    let listener =
        PaymentConsumer::new(Arc::clone(&transport), wallet, settings, Arc::new(callback))?;
    let breakers = Breakers::new(breaker::Settings::default());
    let publishing = requests::worker::run(
        pool.clone(),
        settings.clone(),
        transport,
        breakers,
        WorkerPool::new(pool),
        stop.clone(),
    );
    let tasks = (
        tokio::spawn(publishing),
        tokio::spawn(listener.run(stop.clone())),
    );
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        let left: i64 = sqlx::query_scalar(FILL[3]).fetch_one(pool).await?;
        if left == 0 {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "{left} of {count} are still pending"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    tasks.0.await??;
    tasks.1.await??;
    Ok(())
}

/// Checks that every payment was deducted once and its request is settled.
async fn check(pool: &PgPool, count: i64) -> Result<()> {
    let (settled, entries): (i64, i64) = sqlx::query_as(
        "select (select count(*) from payments.request where status = 'SUCCEED'),
                (select count(*) from wallet.entry where kind = 'payment')",
    )
    .fetch_one(pool)
    .await?;
    ensure!(
        settled == count && entries == 2 * count,
        "{settled} settled, {entries} entries for {count} payments"
    );
    Ok(())
}

fn write_event(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
