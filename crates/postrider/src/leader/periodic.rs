//! A task that one process at a time runs at intervals.

use std::{future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt as _;
use sqlx::{PgConnection, PgPool};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{FenceError, Leader, Leadership};
use crate::{Error, counters};

/// How long until the next run is due, by the database's clock; none was ever: at once.
const DUE_IN: &str = "
select coalesce(extract(epoch from ran_at + make_interval(secs => $2) - clock_timestamp()), 0)::float8
from postrider.leader where name = $1";

/// Only the current leader records a run.
const RAN: &str = "
update postrider.leader set ran_at = now(), done_at = case when $3 then now() else done_at end
where name = $1 and term = $2";

/// What to run and how often.
#[derive(Debug, Clone)]
pub struct Periodic {
    /// The name, one for all processes.
    pub name: String,
    /// From the end of one run to the start of the next.
    pub every: Duration,
    /// How long a silent leader keeps its lease; a third of it is the heartbeat.
    pub lease: Duration,
}

impl Periodic {
    /// A periodic task with a lease of 15 s.
    pub fn new(name: impl Into<String>, every: Duration) -> Self {
        Self {
            name: name.into(),
            every,
            lease: Duration::from_secs(15),
        }
    }

    /// Another lease: shorter is taken over sooner, longer bears longer stalls.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
}

/// One run of a periodic task.
#[derive(Debug, Clone)]
pub struct Tick {
    /// The name of the task.
    pub name: String,
    /// The term of the leader who runs it.
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

/// Runs the task at its intervals while this process is the leader, and waits for its turn while it is not; until
/// `stop` is cancelled. Then the current run is awaited and the lease given up.
///
/// A run that fails or panics is logged and counted, and the next one comes in its time. A run is dropped when the
/// lease is lost. A database that goes away is waited for.
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
                tracing::warn!(name = periodic.name, %error, "can't ask for the leadership; trying again");
            }
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(pause) => {}
        }
    }
    Ok(())
}

/// One term, from the campaign that was won to the loss or the stop.
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
        () = keep(&mut leadership) => true,
    };
    if lost {
        tracing::warn!(
            name = tick.name,
            term = tick.term,
            "the leadership is lost; another process goes on"
        );
    } else if let Err(error) = leadership.resign().await {
        tracing::debug!(name = tick.name, %error, "could not resign; the lease will run out");
    }
}

/// Heartbeats; ends when the lease is lost, or may be.
async fn keep(leadership: &mut Leadership) {
    let lease = leadership.leader.lease;
    // The lease counts from before the call that prolonged it: our view ends sooner than the database's.
    let mut known_good = Instant::now();
    loop {
        sleep(lease / 3).await;
        let started = Instant::now();
        match timeout_at(known_good + lease, leadership.renew()).await {
            Ok(Ok(true)) => known_good = started,
            Ok(Ok(false)) | Err(_) => return,
            Ok(Err(error)) => {
                tracing::warn!(name = leadership.name(), %error, "the heartbeat failed; trying again");
            }
        }
        if Instant::now() >= known_good + lease {
            return;
        }
    }
}

async fn wait_until_due(leader: &Leader, periodic: &Periodic) {
    let asked: Result<f64, sqlx::Error> = sqlx::query_scalar(DUE_IN)
        .bind(&leader.name)
        .bind(periodic.every.as_secs_f64())
        .fetch_one(&leader.pool)
        .await;
    let wait = match asked {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or_default(),
        Err(error) => {
            tracing::warn!(name = leader.name, %error, "can't ask when the next run is due; waiting a whole interval");
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
            tracing::error!(name = tick.name, term = tick.term, %error, "a periodic run failed");
            "failed"
        }
        Err(_) => {
            tracing::error!(
                name = tick.name,
                term = tick.term,
                "a periodic run panicked"
            );
            "panicked"
        }
    };
    metrics::counter!("postrider_periodic_runs_total", "name" => tick.name.clone(), "outcome" => outcome).increment(1);
    metrics::histogram!("postrider_periodic_run_seconds", "name" => tick.name.clone())
        .record(started.elapsed());
    // A failed run counts as well: the interval is also the pause before the next try.
    let recorded = record(leader, tick, outcome == "done").await;
    if let Err(error) = recorded {
        tracing::warn!(name = tick.name, %error, "could not record the run; it may come early next time");
    }
}

async fn record(leader: &Leader, tick: &Tick, done: bool) -> Result<(), Error> {
    postrider_crashpoint::point!("leader.before_record")?;
    sqlx::query(RAN)
        .bind(&tick.name)
        .bind(tick.term)
        .bind(done)
        .execute(&leader.pool)
        .await?;
    Ok(())
}
