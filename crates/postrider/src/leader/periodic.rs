//! A task that one process at a time runs at intervals.

use std::{future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;
use sqlx::{PgConnection, PgPool};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{FenceError, Leader, Leadership};
use crate::{Error, internal::counters};

/// Time until the next run is due, by the database's clock; zero if there was none.
const DUE_IN: &str = "
select coalesce(extract(epoch from ran_at + make_interval(secs => $2) - clock_timestamp()), 0)::float8
from postrider.leader where name = $1";

/// Only the current leader records a run.
const RECORD_RUN: &str = "
update postrider.leader set ran_at = now(), done_at = case when $3 then now() else done_at end
where name = $1 and term = $2";

/// What to run, and how often.
#[derive(Debug, Clone)]
pub struct Periodic {
    /// Name, the same in all processes.
    pub name: String,
    /// Interval from the end of one run to the start of the next.
    pub every: Duration,
    /// How long a silent leader keeps its lease; the heartbeat interval is a third of it.
    pub lease: Duration,
}

impl Periodic {
    /// Creates a periodic task with a lease of 15 s.
    pub fn new(name: impl Into<String>, every: Duration) -> Self {
        Self {
            name: name.into(),
            every,
            lease: Duration::from_secs(15),
        }
    }

    /// Sets the lease: a shorter one is taken over sooner, a longer one survives longer stalls.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
}

/// One run of a periodic task.
#[derive(Debug, Clone)]
pub struct Tick {
    /// Name of the task.
    pub name: String,
    /// Term of the leader that runs it.
    pub term: i64,
    /// Cancelled when the program stops: a long run may end early.
    pub stop: CancellationToken,
    lease: Duration,
}

impl Tick {
    /// See [`Leadership::fence`].
    pub async fn fence(&self, tx: &mut PgConnection) -> Result<(), FenceError> {
        super::fence(tx, &self.name, self.term, self.lease).await
    }
}

/// Runs the task at its intervals while this process is the leader, and otherwise waits to become it, until `stop` is
/// cancelled. Then it waits for the current run and releases the lease.
///
/// A run that fails or panics is logged and counted, and the next one runs on schedule. A run is dropped when the lease
/// is lost. While the database is unavailable, it waits.
pub async fn run_periodic<F, E>(
    pool: PgPool,
    periodic: Periodic,
    stop: CancellationToken,
    mut task: impl FnMut(Tick) -> F,
) -> Result<(), Error>
where
    F: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let leader = Leader::new(pool, periodic.name.clone(), periodic.lease)?;
    counters::register_periodic(&periodic.name);
    let pause = periodic.lease / 3;
    while !stop.is_cancelled() {
        match leader.campaign().await {
            Ok(Some(leadership)) => lead(&leader, leadership, &periodic, &stop, &mut task).await,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(name = periodic.name, %error, "leader election failed; retrying");
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(pause) => {}
        }
    }
    Ok(())
}

/// One term, from winning the election to the loss or the stop.
async fn lead<F, E>(
    leader: &Leader,
    mut leadership: Leadership,
    periodic: &Periodic,
    stop: &CancellationToken,
    task: &mut impl FnMut(Tick) -> F,
) where
    F: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    let tick = Tick {
        name: leader.name.clone(),
        term: leadership.term(),
        stop: stop.clone(),
        lease: leader.lease,
    };
    let runs = async {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = wait_until_due(leader, periodic) => {}
            }
            run_once(leader, &tick, task(tick.clone())).await;
        }
    };
    let lost = tokio::select! {
        () = runs => false,
        () = heartbeat(&mut leadership) => true,
    };
    if lost {
        tracing::warn!(
            name = tick.name,
            term = tick.term,
            "lost the leadership; another process takes over"
        );
    } else if let Err(error) = leadership.resign().await {
        tracing::debug!(name = tick.name, %error, "could not release the leadership; its lease expires by itself");
    }
}

/// Sends heartbeats; ends when the lease is lost, or may be.
async fn heartbeat(leadership: &mut Leadership) {
    let lease = leadership.leader.lease;
    // The lease counts from before the call that extended it: our view ends sooner than the database's.
    let mut known_good = Instant::now();
    loop {
        sleep(lease / 3).await;
        let started = Instant::now();
        match timeout_at(known_good + lease, leadership.renew()).await {
            Ok(Ok(true)) => known_good = started,
            Ok(Ok(false)) | Err(_) => return,
            Ok(Err(error)) => {
                tracing::warn!(name = leadership.name(), %error, "leader heartbeat failed; retrying");
            }
        }
        if Instant::now() >= known_good + lease {
            return;
        }
    }
}

async fn wait_until_due(leader: &Leader, periodic: &Periodic) {
    let answer: Result<f64, sqlx::Error> = sqlx::query_scalar(DUE_IN)
        .bind(&leader.name)
        .bind(periodic.every.as_secs_f64())
        .fetch_one(&leader.pool)
        .await;
    let wait = match answer {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or_default(),
        Err(error) => {
            tracing::warn!(name = leader.name, %error, "could not read when the next run is due; waiting a full interval");
            periodic.every
        }
    };
    sleep(wait.min(periodic.every)).await;
}

async fn run_once<E: std::fmt::Display>(
    leader: &Leader,
    tick: &Tick,
    run: impl Future<Output = Result<(), E>>,
) {
    let started = Instant::now();
    let outcome = match AssertUnwindSafe(run).catch_unwind().await {
        Ok(Ok(())) => "done",
        Ok(Err(error)) => {
            tracing::error!(name = tick.name, term = tick.term, %error, "a periodic task failed; it runs again at its next interval");
            "failed"
        }
        Err(_) => {
            tracing::error!(
                name = tick.name,
                term = tick.term,
                "a periodic task panicked; it runs again at its next interval"
            );
            "panicked"
        }
    };
    metrics::counter!("postrider_periodic_runs_total", "name" => tick.name.clone(), "outcome" => outcome).increment(1);
    metrics::histogram!("postrider_periodic_run_seconds", "name" => tick.name.clone())
        .record(started.elapsed());
    // A failed run counts as well: the interval is also the delay before the next try.
    let recorded = record(leader, tick, outcome == "done").await;
    if let Err(error) = recorded {
        tracing::warn!(name = tick.name, %error, "could not record the run; the next one may start early");
    }
}

async fn record(leader: &Leader, tick: &Tick, done: bool) -> Result<(), Error> {
    postrider_crashpoint::point!("leader.before_record")?;
    sqlx::query(RECORD_RUN)
        .bind(&tick.name)
        .bind(tick.term)
        .bind(done)
        .execute(&leader.pool)
        .await?;
    Ok(())
}
