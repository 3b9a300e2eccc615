//! When N1 and N2 go out, and what they say.
//!
//! N1 once every artifact was tried; N2 after it, once nothing is left to retry, or when its time is up. Never decided
//! in the transaction of a result, for two last results would each see the other missing: after the commit, a short
//! transaction locks the job and counts anew. The marker, the notification and its message commit together, so each
//! goes out once, however many look at the job and whoever dies over it.

use std::time::Duration;

use postrider::{Error, outbox::OUTBOX, wake::Waker};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::{
    Settings, counters,
    settings::{N2, WhenNoRetry},
    store::summary::{self, Counts, Standing},
};

/// Looks after the notifications of jobs.
#[derive(Debug, Clone)]
pub struct Gate {
    pool: PgPool,
    n2: N2,
    waker: Waker,
}

impl Gate {
    /// A gate with these settings. Call it inside a tokio runtime.
    #[must_use]
    pub fn new(pool: PgPool, settings: &Settings) -> Self {
        Self {
            waker: Waker::new(pool.clone()),
            pool,
            n2: settings.n2,
        }
    }

    pub(crate) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Something came of artifacts of these jobs: is one of them ready?
    pub async fn check(&self, jobs: &[Uuid]) -> Result<(), Error> {
        for job in summary::candidates(&self.pool, jobs).await? {
            self.decide(job).await?;
        }
        Ok(())
    }

    /// All open jobs that something is to be done about: what a lost hint has missed, and those whose time is up.
    pub async fn sweep(&self) -> Result<usize, Error> {
        const PIECE: i64 = 500;
        let mut seen = 0;
        loop {
            let jobs = summary::overdue(&self.pool, self.n2.force_after, PIECE).await?;
            seen += jobs.len();
            for (job, _) in &jobs {
                self.decide(*job).await?;
            }
            if i64::try_from(jobs.len()).unwrap_or(PIECE) < PIECE {
                return Ok(seen);
            }
        }
    }

    /// Locks the job, counts, and sends what is due. Safe to call at any time, any number of times, by anybody.
    pub async fn decide(&self, job: Uuid) -> Result<(), Error> {
        let mut tx = self.pool.begin().await?;
        let force_after = self.n2.force_after;
        let Some(standing) = summary::lock(&mut tx, job, force_after).await? else {
            return Ok(());
        };
        if standing.closed {
            return Ok(());
        }
        let counts = summary::count(&mut tx, job).await?;
        let sent = self.step(&mut tx, job, standing, counts).await?;
        if !sent {
            return Ok(());
        }
        postrider_crashpoint::point!("evidence.notify_before_commit")?;
        tx.commit().await?;
        self.waker.wake(&OUTBOX);
        Ok(())
    }

    /// Says whether anything was written.
    async fn step(
        &self,
        tx: &mut PgConnection,
        job: Uuid,
        standing: Standing,
        counts: Counts,
    ) -> Result<bool, Error> {
        if !standing.n1 {
            if counts.untried > 0 {
                return Ok(false);
            }
            let errors = summary::errors(&mut *tx, job).await?;
            let body = first(job, counts, &errors);
            summary::note(tx, job, "evidence.n1", false, &body).await?;
            tracing::info!(%job, attached = counts.attached, failed = counts.failed, "N1 goes out");
        }
        let settled = counts.retryable == 0;
        let forced = !settled && standing.n1 && standing.overdue;
        if !settled && !forced {
            return Ok(!standing.n1);
        }
        let retry_needed = counts.retried > 0 || counts.retryable > 0;
        if !retry_needed && self.n2.when_no_retry == WhenNoRetry::Skip {
            summary::close(tx, job).await?;
            return Ok(true);
        }
        let unsettled = if forced {
            let permanent = self.n2.mark_remaining_permanent;
            let taken = summary::take_away(&mut *tx, job, permanent).await?;
            if permanent {
                for code in &taken {
                    counters::permanent_failure(code, 1);
                }
            }
            taken.len()
        } else {
            0
        };
        // Counted again: between the first count and the taking away, a result may have come in.
        let counts = if forced {
            summary::count(&mut *tx, job).await?
        } else {
            counts
        };
        let body = self
            .second(tx, job, counts, unsettled, retry_needed, forced)
            .await?;
        summary::note(tx, job, "evidence.n2", forced, &body).await?;
        let since = standing.since_n1.unwrap_or_default().max(0.0);
        if forced {
            counters::n2_forced();
        }
        counters::n2_latency(Duration::from_secs_f64(since));
        tracing::info!(%job, attached = counts.attached, unsettled, forced, "N2 goes out");
        Ok(true)
    }

    async fn second(
        &self,
        tx: &mut PgConnection,
        job: Uuid,
        counts: Counts,
        unsettled: usize,
        retry_needed: bool,
        forced: bool,
    ) -> Result<Value, Error> {
        let unsettled = i64::try_from(unsettled).unwrap_or(i64::MAX);
        Ok(json!({
            "type": "evidence.n2",
            "file_job_id": job,
            "total": counts.total,
            "attached": counts.attached,
            "permanent_failed": counts.failed - unsettled,
            "unsettled": unsettled,
            "recovered_by_retry": counts.recovered,
            "retry_needed": retry_needed,
            "forced": forced,
            "errors": summary::errors(&mut *tx, job).await?,
            "cannot_retry": summary::cannot_retry(tx, job).await?,
        }))
    }
}

fn first(job: Uuid, counts: Counts, errors: &Value) -> Value {
    json!({
        "type": "evidence.n1",
        "file_job_id": job,
        "total": counts.total,
        "attached": counts.attached,
        "failed": counts.failed,
        "will_retry": counts.retryable,
        "errors": errors,
    })
}
