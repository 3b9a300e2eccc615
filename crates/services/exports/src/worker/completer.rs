//! Completes jobs soon after their last input. What it misses, the [finalizer](crate::cleaning) completes.

use std::{collections::HashMap, time::Duration};

use sqlx::PgPool;
use tokio::{sync::mpsc, time::Instant};
use uuid::Uuid;

use crate::{gauges, store::closing};

/// First delay before a job is checked: inputs that finish together share one check.
const MIN_DELAY: Duration = Duration::from_millis(50);

/// A job that is unfinished after this delay is left to the finalizer.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Checking a large job is slow while its finished inputs precede the others in the index: after a check, the completer
/// rests for this many times its duration.
const REST_FACTOR: u32 = 10;

/// Checks the jobs whose inputs this process works on.
#[derive(Debug)]
pub(crate) struct Completer {
    jobs: mpsc::UnboundedSender<Uuid>,
}

impl Completer {
    /// Starts the checks; they end when the completer is dropped. Must be called inside a tokio runtime.
    pub fn start(pool: PgPool) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(run(pool, receiver));
        Self { jobs: sender }
    }

    /// An input of this job is finished.
    pub fn input_finished(&self, job: Uuid) {
        // If the task has ended, the finalizer completes the job.
        let _ = self.jobs.send(job);
    }
}

async fn run(pool: PgPool, mut finished: mpsc::UnboundedReceiver<Uuid>) {
    // When to check each job, and the delay before that, which doubles while nothing of the job finishes.
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
            job = finished.recv() => {
                let Some(job) = job else { return };
                let at = Instant::now() + MIN_DELAY;
                let entry = jobs.entry(job).or_insert((at, MIN_DELAY));
                *entry = (entry.0.min(at), MIN_DELAY);
            }
            () = due => {
                let now = Instant::now();
                let due: Vec<Uuid> = jobs.iter().filter(|(_, (at, _))| *at <= now).map(|(job, _)| *job).collect();
                let open = check(&pool, &due).await;
                rest_until = Instant::now() + now.elapsed() * REST_FACTOR;
                for job in &due {
                    match jobs.remove(job) {
                        Some((_, delay)) if open.contains(job) && delay < MAX_DELAY => {
                            jobs.insert(*job, (now + delay * 2, delay * 2));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Completes the finished ones of these jobs; returns those that are open.
async fn check(pool: &PgPool, jobs: &[Uuid]) -> Vec<Uuid> {
    let checked = async {
        complete(pool, jobs).await?;
        closing::still_open(pool, jobs).await
    };
    checked.await.unwrap_or_else(|error: sqlx::Error| {
        tracing::debug!(%error, "jobs can't be completed now; the finalizer will complete them");
        jobs.to_vec()
    })
}

/// Closes those of these jobs that have nothing left to do.
pub(crate) async fn complete(pool: &PgPool, jobs: &[Uuid]) -> Result<(), sqlx::Error> {
    let closed = closing::complete(pool, jobs).await?;
    gauges::job("completed", closed.completed.len() as u64);
    for job in &closed.completed {
        tracing::info!(job, "job completed");
    }
    gauges::job("failed", closed.failed.len() as u64);
    for job in &closed.failed {
        tracing::warn!(
            job,
            "job failed: some of its inputs are archived without a file"
        );
    }
    Ok(())
}
