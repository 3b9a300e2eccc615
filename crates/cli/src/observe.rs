//! Metrics of the program: every metric from the start, and gauges read from the database.
//!
//! The promises: every metric appears at zero before anything has happened; a gauge from the database is the same in every
//! process, at most a few seconds old, and reading the gauges takes at most a twentieth of the database's time. Gauges and
//! alerts use the same queries.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use metrics::{describe_counter, describe_gauge, gauge};
use postrider::internal::counters;
use postrider_inspect::gauges::{self, Gauge, WorkTableGauges};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{alerts, services};

/// Interval between two reads.
const INTERVAL: Duration = Duration::from_secs(5);

/// A read may take at most one part in this many of the time.
const MAX_LOAD: u32 = 20;

const REACHABLE: &str = "postrider_database_reachable";

/// Registers every metric of the program, at zero.
pub fn register() {
    counters::register(services::work_tables());
    gauges::register(services::work_tables());
    for service in services::descriptions() {
        (service.register_metrics)();
    }
    postrider_web::observe::register();
    alerts::register();
    describe_gauge!("postrider_build_info", "Always 1; the label is the version");
    gauge!("postrider_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    describe_gauge!(
        REACHABLE,
        "1 while the database answers this process, 0 while it does not"
    );
    gauge!(REACHABLE).set(1.0);
    describe_counter!(
        "postrider_taken_in_total",
        "Messages stored from an external broker, by group and outcome (new, duplicate)"
    );
}

/// Reads the gauges of the whole program.
#[derive(Debug, Clone)]
pub struct Gauges {
    pool: PgPool,
    engine: WorkTableGauges,
    /// The wallet's own database, if it has one.
    wallet: Option<(PgPool, WorkTableGauges)>,
}

impl Gauges {
    /// Over this database, and the wallet's own if there is one.
    #[must_use]
    pub fn new(pool: PgPool, wallet: Option<PgPool>) -> Self {
        let theirs = &postrider_payments::WALLET_OUTBOX;
        let ours = services::work_tables()
            .filter(|table| wallet.is_none() || !std::ptr::eq(*table, theirs));
        Self {
            pool,
            engine: WorkTableGauges::new(ours),
            wallet: wallet.map(|pool| (pool, WorkTableGauges::new([theirs]))),
        }
    }

    /// Reads all gauges.
    pub async fn read(&self) -> Result<Vec<Gauge>, sqlx::Error> {
        let mut found = self.engine.read(&self.pool).await?;
        if let Some((pool, readings)) = &self.wallet {
            found.extend(readings.read(pool).await?);
        }
        for service in services::descriptions() {
            found.extend((service.gauges)(&self.pool).await?);
        }
        Ok(found)
    }

    /// Keeps gauges and alerts up to date, until the stop.
    pub async fn run(self, alerts: alerts::State, stop: CancellationToken) {
        let mut shown = BTreeSet::new();
        loop {
            let started = Instant::now();
            let update = async {
                show(&self.read().await?, &mut shown);
                alerts.refresh(&self.pool).await
            };
            let reachable = match update.await {
                Ok(()) => 1.0,
                Err(error) => {
                    tracing::debug!(%error, "the gauges can't be read; retrying");
                    0.0
                }
            };
            gauge!(REACHABLE).set(reachable);
            let pause = INTERVAL.max(started.elapsed() * MAX_LOAD);
            let slept = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            if slept.is_none() {
                return;
            }
        }
    }
}

/// Sets the gauges. A series that no longer exists (a task that is no longer configured) becomes NaN, so that no rule
/// evaluates its last value.
fn show(readings: &[Gauge], shown: &mut BTreeSet<(&'static str, &'static str, String)>) {
    let mut now = BTreeSet::new();
    for reading in readings {
        reading.record();
        if let Some((label, which)) = &reading.label {
            now.insert((reading.name, *label, which.clone()));
        }
    }
    for (name, label, which) in shown.difference(&now) {
        Gauge::labeled(name, label, which.clone(), f64::NAN).record();
    }
    *shown = now;
}
