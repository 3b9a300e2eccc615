//! Jobs follow their inputs: a quick look after each, and a finalizer that makes it true whatever was missed.

use std::{collections::HashMap, time::Duration};

use postrider::{
    Error,
    leader::{Periodic, run_periodic},
};
use postrider_inspect::gauges::{Gauge, gauge_value};
use sqlx::PgPool;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    counters,
    model::Input,
    store::closing::{self, Closed, Dead},
    worker::death,
};

/// Many inputs that are settled one after the other share one look.
const SOON: Duration = Duration::from_millis(50);

/// So long a job that is not finished is looked after; then the finalizer has it.
const LONGEST: Duration = Duration::from_secs(2);

/// A look at a large job takes long, while its finished inputs still lie before the others: looking takes at most one part
/// in so many of the time.
const LOOKING: u32 = 10;

/// Open jobs per look of the finalizer.
const PAGE: i64 = 500;

/// Looks after the jobs whose inputs this process works on.
#[derive(Debug)]
pub(crate) struct Completer {
    touched: mpsc::UnboundedSender<Uuid>,
}

impl Completer {
    /// Starts looking; ends with the completer. Call it inside a tokio runtime.
    pub fn start(pool: PgPool) -> Self {
        let (touched, jobs) = mpsc::unbounded_channel();
        tokio::spawn(look_after(pool, jobs));
        Self { touched }
    }

    /// An input of this job is finished.
    pub fn touched(&self, job: Uuid) {
        // Without anybody there the finalizer does it.
        let _ = self.touched.send(job);
    }
}

async fn look_after(pool: PgPool, mut touched: mpsc::UnboundedReceiver<Uuid>) {
    // When to look at each job next, and how long to wait after that if nothing is touched meanwhile.
    let mut jobs: HashMap<Uuid, (Instant, Duration)> = HashMap::new();
    let mut rest_until = Instant::now();
    loop {
        let next = jobs.values().map(|(at, _)| *at).min();
        let next = next.map(|at| at.max(rest_until));
        let due = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            job = touched.recv() => {
                let Some(job) = job else { return };
                let at = Instant::now() + SOON;
                let entry = jobs.entry(job).or_insert((at, SOON));
                *entry = (entry.0.min(at), SOON);
            }
            () = due => {
                let now = Instant::now();
                let asked: Vec<Uuid> = jobs.iter().filter(|(_, (at, _))| *at <= now).map(|(job, _)| *job).collect();
                let open = look(&pool, &asked).await;
                rest_until = Instant::now() + now.elapsed() * LOOKING;
                for job in &asked {
                    match jobs.remove(job) {
                        Some((_, waited)) if open.contains(job) && waited < LONGEST => {
                            jobs.insert(*job, (now + waited * 2, waited * 2));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Completes what is finished of these; gives those that are open.
async fn look(pool: &PgPool, jobs: &[Uuid]) -> Vec<Uuid> {
    let looked = async {
        announce(&closing::complete(pool, jobs).await?);
        closing::still_open(pool, jobs).await
    };
    looked.await.unwrap_or_else(|error: sqlx::Error| {
        tracing::debug!(%error, "jobs can't be completed now; the finalizer does it");
        jobs.to_vec()
    })
}

fn announce(closed: &Closed) {
    counters::job("completed", closed.completed.len() as u64);
    for job in &closed.completed {
        tracing::info!(job, "job completed");
    }
    counters::job("failed", closed.failed.len() as u64);
    for job in &closed.failed {
        tracing::warn!(job, "job failed: inputs that were given up are archived");
    }
}

/// Makes every job's state what its inputs say, until the stop; one process at a time does it.
pub async fn finalizer(
    pool: PgPool,
    every: Duration,
    stop: CancellationToken,
) -> Result<(), Error> {
    let task = |_| finalize_once(pool.clone());
    run_periodic(
        pool.clone(),
        Periodic::new("exports.finalizer", every),
        stop,
        task,
    )
    .await
}

/// One run of the finalizer.
pub async fn finalize_once(pool: PgPool) -> Result<(), Error> {
    let mut after = Uuid::nil();
    loop {
        let jobs = closing::open_jobs(&pool, after, PAGE).await?;
        let Some(last) = jobs.last() else { break };
        after = *last;
        for dead in closing::dead_of(&pool, &jobs).await? {
            fail(&pool, dead).await?;
        }
        announce(&closing::complete(&pool, &jobs).await?);
    }
    let parked = closing::park_loose(&pool).await?;
    let forgotten = closing::forget_generations(&pool).await?;
    tracing::debug!(parked, forgotten, "exports finalized");
    Ok(())
}

async fn fail(pool: &PgPool, dead: Dead) -> Result<(), sqlx::Error> {
    let input = Input {
        index_key: dead.index_key,
        effective_date: dead.effective_date,
        asof_indicator: dead.asof_indicator,
    };
    let message = dead.error_message.unwrap_or_default();
    let reason = death(&input, &dead.error_code, &message);
    let mut tx = pool.begin().await?;
    if closing::fail(&mut tx, dead.job_id, &reason).await? {
        counters::job("failed", 1);
    }
    tx.commit().await
}

/// What the gauges and the alerts look at: jobs without an end.
pub async fn readings(pool: &PgPool) -> Result<Vec<Gauge>, sqlx::Error> {
    let (jobs, oldest) = closing::open(pool).await?;
    Ok(vec![
        Gauge::new(counters::OPEN, gauge_value(jobs)),
        Gauge::new(counters::OPEN_AGE, oldest),
    ])
}
