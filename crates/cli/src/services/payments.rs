//! How payments plug into the program: two sides, of which the wallet may have a database of its own.

use std::sync::Arc;

use axum::extract::FromRef;
use postrider::{doctor::Doctor, migrate::Migrator, pool};
use postrider_payments::{
    Payments, cleaning, publish, reconcile,
    wallet::{
        Wallet,
        callback::{Callback, Direct, Http, HttpSettings},
        listener::Listener,
        notify,
    },
};
use sqlx::{PgPool, postgres::PgConnectOptions};

use super::{Part, Service};
use crate::{
    config::Config,
    database::address,
    exit::{Exit, Failure},
    http::State,
    roles::{Resources, Role},
};

pub(super) const SERVICE: Service = Service {
    name: "payments",
    migrations: postrider_payments::migrations,
    codes: postrider_payments::codes::ALL,
    tables: &[
        &postrider_payments::OUTBOX,
        &postrider_payments::WALLET_OUTBOX,
    ],
    checks: postrider_payments::CHECKS,
    trail: |apis, id| super::by_uuid(id, |id| apis.payments.trail(id)),
    parts,
    register: postrider_payments::counters::register,
    readings: |pool| Box::pin(cleaning::readings(pool)),
};

impl FromRef<State> for Payments {
    fn from_ref(state: &State) -> Self {
        state.apis.payments.clone()
    }
}

/// Starts accepting.
pub(super) fn start(pool: &PgPool, config: &Config) -> Result<Payments, Failure> {
    let wallet = wallet(pool, config)?;
    Ok(Payments::start(
        pool.clone(),
        wallet,
        config.payments.reconcile,
    ))
}

/// The wallet's database, where it is another than the program's.
pub fn wallet_database(config: &Config) -> Result<Option<PgConnectOptions>, Failure> {
    let Some(url) = &config.payments.wallet.database_url else {
        return Ok(None);
    };
    address(url.as_str(), "payments.wallet.database_url").map(Some)
}

/// What a wallet's own database needs: the engine's schema and its own.
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

/// The wallet, with connections of its own in either case: the two sides never share one.
fn wallet(pool: &PgPool, config: &Config) -> Result<Wallet, Failure> {
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

fn parts(ground: &Resources, config: &Config) -> Result<Vec<Part>, Failure> {
    let failed =
        |e: postrider::Error| Failure::caused(Exit::Config, "payments can't be worked on", &e);
    let settings = &config.payments;
    let (pool, stop) = (&ground.pool, &ground.stop);
    let transport = Arc::clone(&ground.transport);
    let wallet = wallet(pool, config)?;
    let callback = callback(ground, config)?;
    let listener = Listener::new(
        Arc::clone(&transport),
        wallet.clone(),
        settings,
        Arc::clone(&callback),
    )
    .map_err(failed)?;
    let notifier = notify::worker(
        wallet.pool().clone(),
        settings,
        callback,
        &ground.breakers,
        settings.breaker.over(config.breaker),
    )
    .map_err(failed)?;
    let publishing = publish::run(
        pool.clone(),
        settings.clone(),
        transport,
        ground.breakers.clone(),
        ground.side.clone(),
        stop.clone(),
    );
    let clean = cleaning::clean(pool.clone(), settings.retention, stop.clone());
    let mut parts = vec![
        Part::new(Role::Publisher, publishing),
        Part::new(Role::Worker, listener.run(stop.clone())),
        Part::new(Role::Worker, notifier.run(stop.clone())),
        Part::new(Role::Scheduler, clean),
    ];
    if settings.wallet.database_url.is_some() {
        let kept = cleaning::Kept {
            attempts: config.retention.attempts,
            archive: config.retention.archive,
        };
        let clean = cleaning::clean_wallet(wallet.pool().clone(), kept, stop.clone());
        parts.push(Part::new(Role::Scheduler, clean));
    }
    if let Some(every) = settings.reconcile.every {
        let after = settings.reconcile.after;
        let reconcile = reconcile::schedule(pool.clone(), wallet, every.0, after, stop.clone());
        parts.push(Part::new(Role::Scheduler, reconcile));
    }
    Ok(parts)
}

fn callback(ground: &Resources, config: &Config) -> Result<Arc<dyn Callback>, Failure> {
    let settings = &config.payments.callback;
    let Some(url) = settings.url.clone() else {
        return Ok(Arc::new(Direct::new(ground.pool.clone())));
    };
    let http = Http::new(HttpSettings {
        url,
        token: settings.token.clone(),
        timeout: settings.timeout,
    })
    .map_err(|e| Failure::caused(Exit::Config, "the orchestrator can't be called back", &e))?;
    Ok(Arc::new(http))
}
