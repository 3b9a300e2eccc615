//! Schedules retries: a new event for each row with a retryable artifact that is due, in batches with delays in between.
//!
//! One process at a time runs it; if two do, row locks keep them from scheduling anything twice. While the Case API's
//! breaker is open, nothing is scheduled: events would only pile up.

use std::time::{Duration, Instant};

use postrider::{
    Error, RetryPolicy,
    leader::{Periodic, run_periodic},
    outbox::OUTBOX,
    wake::Waker,
};
use postrider_blob::Store;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    Settings, gauges, settings,
    store::schedule,
    store::schedule::Scheduled,
    summary_gate::Gate,
    worker::{DEPENDENCY, fail_row},
};

/// The periodic task's name.
pub(crate) const NAME: &str = "evidence.scheduler";

/// An artifact that was scheduled this long ago without being worked on is scheduled again.
const STALE_AFTER: Duration = Duration::from_secs(900);

/// The retry scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    pool: PgPool,
    files: Store,
    settings: settings::Scheduler,
    policy: RetryPolicy,
    gate: Gate,
    waker: Waker,
}

impl Scheduler {
    /// A scheduler with these settings. Must be called inside a tokio runtime.
    pub fn new(pool: PgPool, files: Store, settings: &Settings) -> Result<Self, Error> {
        let policy = settings
            .policy()
            .map_err(|error| Error::invalid("evidence.retry", error.to_string()))?;
        Ok(Self {
            gate: Gate::new(pool.clone(), settings),
            waker: Waker::new(pool.clone()),
            pool,
            files,
            settings: settings.scheduler,
            policy,
        })
    }

    /// Runs at its interval while this process is the leader, until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        gauges::register();
        let pool = self.pool.clone();
        let periodic = Periodic::new(NAME, self.settings.interval);
        run_periodic(pool, periodic, stop, |tick| {
            let (scheduler, stop) = (self.clone(), tick.stop);
            async move { scheduler.tick(&stop).await }
        })
        .await
    }

    /// One run: schedules retries, then checks for notifications that were missed.
    pub async fn tick(&self, stop: &CancellationToken) -> Result<(), Error> {
        let started = Instant::now();
        self.fail_rows_of_dead_events().await?;
        if schedule::breaker_is_open(&self.pool, DEPENDENCY).await? {
            gauges::breaker_open();
            tracing::info!("the Case API's breaker is open; no retries are scheduled");
        } else {
            self.schedule_all(stop).await?;
        }
        self.gate.sweep().await?;
        gauges::scheduler_run(started.elapsed());
        Ok(())
    }

    async fn schedule_all(&self, stop: &CancellationToken) -> Result<(), Error> {
        loop {
            let batch = self.schedule(None, "AUTOMATED_RETRY").await?;
            gauges::scheduler_batch(batch.rows);
            if batch.rows < usize::try_from(self.settings.batch_size_rows).unwrap_or(usize::MAX) {
                return Ok(());
            }
            let delay = self.settings.sleep_between_batches.draw(rand::random());
            let slept = stop.run_until_cancelled(tokio::time::sleep(delay)).await;
            if slept.is_none() {
                return Ok(());
            }
        }
    }

    /// Schedules one batch, of one job or of all.
    pub(crate) async fn schedule(
        &self,
        job: Option<Uuid>,
        reason: &str,
    ) -> Result<Scheduled, Error> {
        let limit = self.settings.batch_size_rows;
        let scheduled =
            schedule::schedule(&self.pool, &self.files, job, limit, STALE_AFTER, reason).await?;
        if scheduled.rows > 0 {
            let Scheduled { rows, artifacts } = scheduled;
            tracing::info!(rows, artifacts, "retries scheduled");
            self.waker.wake(&OUTBOX);
        }
        Ok(scheduled)
    }

    /// A dead first event will never be tried: its artifacts fail, so that N1 becomes due.
    async fn fail_rows_of_dead_events(&self) -> Result<(), Error> {
        for row in schedule::rows_of_dead_events(&self.pool).await? {
            let reason = "the event that requested the first attempt is a dead letter";
            let artifacts = fail_row(&self.pool, &self.policy, row, reason).await?;
            tracing::error!(%row, artifacts, "a row's first event is a dead letter; its artifacts failed");
        }
        Ok(())
    }
}
