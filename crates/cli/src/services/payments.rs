//! Starts payments: the API and the background tasks, from the configuration.

use std::sync::Arc;

use postrider::{internal::pool, migrate::Migrator};
use postrider_inspect::doctor::Doctor;
use postrider_payments::{
    Payments, reconcile, requests,
    wallet::{
        self, Wallet,
        callback::{Callback, HttpCallback, LocalCallback},
        consumer::PaymentConsumer,
    },
};
use sqlx::{PgPool, postgres::PgConnectOptions};

use super::Start;
use crate::{
    config::Config,
    database::address,
    exit::{Exit, Failure},
    roles::{Resources, Role, Task},
};

/// Starts the API.
pub(super) fn start(start: &Start<'_>) -> Result<Payments, Failure> {
    let wallet = open_wallet(start.pool, start.config)?;
    let reconcile = start.config.payments.reconcile;
    Ok(Payments::start(start.pool.clone(), wallet, reconcile))
}

/// The wallet's own database, if one is configured.
pub fn wallet_database(config: &Config) -> Result<Option<PgConnectOptions>, Failure> {
    let Some(url) = &config.payments.wallet.database_url else {
        return Ok(None);
    };
    address(url.as_str(), "payments.wallet.database_url").map(Some)
}

/// Migrations of a wallet's own database: the library's schema and the wallet's.
pub fn wallet_migrator() -> Migrator {
    Migrator::new([
        postrider::migrations(),
        postrider_payments::wallet_migrations(),
    ])
    .program_version(env!("CARGO_PKG_VERSION"))
}

/// Examines a wallet's own database.
pub fn wallet_doctor() -> Doctor {
    Doctor::new([&postrider_payments::WALLET_OUTBOX])
        .checks(postrider_payments::WALLET_CHECKS.iter().copied())
        .migrator(wallet_migrator())
}

/// The wallet, always with its own connections: the two sides never share one.
fn open_wallet(pool: &PgPool, config: &Config) -> Result<Wallet, Failure> {
    let options = match wallet_database(config)? {
        Some(options) => options,
        None => pool.connect_options().as_ref().clone(),
    };
    let settings = &config.payments;
    let pool = pool::options()
        .max_connections(settings.wallet.pool_size)
        .acquire_timeout(config.database.acquire_timeout)
        .connect_lazy_with(options.application_name("postrider-wallet"));
    Ok(Wallet::new(pool, settings.callback.timeout))
}

pub(super) fn tasks(resources: &Resources, config: &Config) -> Result<Vec<Task>, Failure> {
    let failed = |e: postrider::Error| {
        Failure::caused(Exit::Config, "the payments tasks can't be started", &e)
    };
    let settings = &config.payments;
    let (pool, stop) = (&resources.pool, &resources.stop);
    let transport = Arc::clone(&resources.transport);
    let wallet = open_wallet(pool, config)?;
    let callback = callback(resources, config)?;
    let consumer = PaymentConsumer::new(
        Arc::clone(&transport),
        wallet.clone(),
        settings,
        Arc::clone(&callback),
    )
    .map_err(failed)?;
    let callbacks = wallet::worker::worker(
        wallet.pool().clone(),
        settings,
        callback,
        &resources.breakers,
        settings.breaker.over(config.breaker),
    )
    .map_err(failed)?;
    let publishing = requests::worker::run(
        pool.clone(),
        settings.clone(),
        transport,
        resources.breakers.clone(),
        resources.worker_pool.clone(),
        stop.clone(),
    );
    let clean = requests::cleaning::clean(pool.clone(), settings.retention, stop.clone());
    let mut tasks = vec![
        Task::new(Role::Publisher, publishing),
        Task::new(Role::Worker, consumer.run(stop.clone())),
        Task::new(Role::Worker, callbacks.run(stop.clone())),
        Task::new(Role::Scheduler, clean),
    ];
    if settings.wallet.database_url.is_some() {
        let retention = wallet::cleaning::Retention {
            attempts: config.retention.attempts,
            archive: config.retention.archive,
        };
        let clean = wallet::cleaning::clean(wallet.pool().clone(), retention, stop.clone());
        tasks.push(Task::new(Role::Scheduler, clean));
    }
    if let Some(every) = settings.reconcile.every {
        let after = settings.reconcile.after;
        let reconcile = reconcile::run(pool.clone(), wallet, every.0, after, stop.clone());
        tasks.push(Task::new(Role::Scheduler, reconcile));
    }
    Ok(tasks)
}

fn callback(resources: &Resources, config: &Config) -> Result<Arc<dyn Callback>, Failure> {
    let Some(endpoint) = config.payments.callback.endpoint() else {
        return Ok(Arc::new(LocalCallback::new(resources.pool.clone())));
    };
    let http = HttpCallback::new(endpoint)
        .map_err(|e| Failure::caused(Exit::Config, "payments.callback", &e))?;
    Ok(Arc::new(http))
}
