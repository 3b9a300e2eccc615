//! What can be seen of the program from outside: every metric from the start, and gauges over the database.
//!
//! The promises: every name appears at zero before anything has happened; a gauge over the database is the same in every
//! process, is a few seconds old at most, and reading it costs the database no more than a twentieth of its time, however
//! many ask. What the gauges show and what the alerts judge is read by the same statements.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use metrics::{describe_counter, describe_gauge, gauge};
use postrider::counters;
use postrider_inspect::gauges::{self, Gauge, WorkTableGauges};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::{alerts, services};

/// How often the database is read.
const EVERY: Duration = Duration::from_secs(5);

/// And how small a part of the time that may take.
const SHARE: u32 = 20;

const REACHABLE: &str = "postrider_database_reachable";

/// Makes every metric of the program appear, at zero.
pub fn register() {
    counters::register(services::work_tables());
    gauges::register(services::work_tables());
    for service in services::descriptions() {
        (service.register_metrics)();
    }
    postrider_web::observe::register();
    alerts::register();
    describe_gauge!(
        "postrider_build_info",
        "Always 1; the label says which version"
    );
    gauge!("postrider_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    describe_gauge!(
        REACHABLE,
        "1 while the database answers this process, 0 while it does not"
    );
    gauge!(REACHABLE).set(1.0);
    describe_counter!(
        "postrider_taken_in_total",
        "Messages taken in from a broker outside, by group and outcome"
    );
}

/// Reads everything that the gauges show and the alerts judge.
#[derive(Debug, Clone)]
pub struct Gauges {
    pool: PgPool,
    engine: WorkTableGauges,
    /// The wallet's own database, where it has one.
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

    /// Everything, as of now.
    pub async fn take(&self) -> Result<Vec<Gauge>, sqlx::Error> {
        let mut found = self.engine.read(&self.pool).await?;
        if let Some((pool, readings)) = &self.wallet {
            found.extend(readings.read(pool).await?);
        }
        for service in services::descriptions() {
            found.extend((service.gauges)(&self.pool).await?);
        }
        Ok(found)
    }

    /// Keeps the gauges and what is known of alerts true, until the stop.
    pub async fn run(self, alerts: alerts::State, stop: CancellationToken) {
        let mut shown = BTreeSet::new();
        loop {
            let begun = Instant::now();
            let read = async {
                show(&self.take().await?, &mut shown);
                alerts.refresh(&self.pool).await
            };
            let reachable = match read.await {
                Ok(()) => 1.0,
                Err(error) => {
                    tracing::debug!(%error, "gauges can't be read now");
                    0.0
                }
            };
            gauge!(REACHABLE).set(reachable);
            let pause = EVERY.max(begun.elapsed() * SHARE);
            let slept = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            if slept.is_none() {
                return;
            }
        }
    }
}

/// Sets the gauges. What was there before and no longer is (a task that is not configured any more) is no number at all,
/// so that no rule goes on judging its last value.
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
