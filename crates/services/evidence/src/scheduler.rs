//! Puts retries: a new event for each row that has something retryable and due, in batches with pauses between them.
//!
//! One process at a time runs it; should two do so, the rows' locks make them behave as one. While the Case API is left
//! alone by a breaker nothing is put, for it would only pile up.

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
    Settings, counters, settings,
    store::schedule,
    store::schedule::Scheduled,
    summary_gate::Gate,
    worker::{DEPENDENCY, give_up_row},
};

/// The periodic task's name.
pub(crate) const NAME: &str = "evidence.scheduler";

/// An artifact that was scheduled so long ago and that nobody works on is scheduled anew.
const STALE: Duration = Duration::from_secs(900);

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
    /// With these settings. Call it inside a tokio runtime.
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

    /// Runs at its interval while this process is the leader, until the stop.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        counters::register();
        let pool = self.pool.clone();
        let periodic = Periodic::new(NAME, self.settings.interval);
        run_periodic(pool, periodic, stop, |tick| {
            let (scheduler, stop) = (self.clone(), tick.stop);
            async move { scheduler.tick(&stop).await }
        })
        .await
    }

    /// One run: retries first, then what the notifications may have missed.
    pub async fn tick(&self, stop: &CancellationToken) -> Result<(), Error> {
        let started = Instant::now();
        self.bury().await?;
        if schedule::suspended(&self.pool, DEPENDENCY).await? {
            counters::breaker_open();
            tracing::info!("the Case API is left alone: no retries are put");
        } else {
            self.put_all(stop).await?;
        }
        self.gate.sweep().await?;
        counters::ran(started.elapsed());
        Ok(())
    }

    async fn put_all(&self, stop: &CancellationToken) -> Result<(), Error> {
        loop {
            let batch = self.put(None, "AUTOMATED_RETRY").await?;
            counters::batch(batch.rows);
            if batch.rows < usize::try_from(self.settings.batch_size_rows).unwrap_or(usize::MAX) {
                return Ok(());
            }
            let pause = self.settings.sleep_between_batches.draw(rand::random());
            let slept = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
            if slept.is_none() {
                return Ok(());
            }
        }
    }

    /// One batch: of one job, or of all.
    pub(crate) async fn put(&self, job: Option<Uuid>, reason: &str) -> Result<Scheduled, Error> {
        let most = self.settings.batch_size_rows;
        let put = schedule::round(&self.pool, &self.files, job, most, STALE, reason).await?;
        if put.rows > 0 {
            tracing::info!(
                rows = put.rows,
                artifacts = put.artifacts,
                "retries are put"
            );
            self.waker.wake(&OUTBOX);
        }
        Ok(put)
    }

    /// A first event that died on its way will never be tried: its artifacts have failed, and N1 can come.
    async fn bury(&self) -> Result<(), Error> {
        for row in schedule::rows_of_dead_events(&self.pool).await? {
            let why = "the event that asked for the first attempt is a dead letter";
            let artifacts = give_up_row(&self.pool, &self.policy, row, why).await?;
            tracing::error!(%row, artifacts, "a row's first event is a dead letter");
        }
        Ok(())
    }
}
