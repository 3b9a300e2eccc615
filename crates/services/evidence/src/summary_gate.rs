//! Decides when N1 and N2 are sent, and what they say.
//!
//! N1 is sent once every artifact was tried; N2 after it, once nothing is left to retry or its deadline has passed. This
//! is never decided in the transaction of a result, because two last results would each miss the other: after the
//! commit, a short transaction locks the job and counts again. The marker, the notification and its message commit
//! together, so each is sent once, no matter how many processes check the job or crash.

use std::time::Duration;

use postrider::{Error, outbox::OUTBOX, wake::Waker};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::{
    Settings, gauges,
    settings::{N2, WhenNoRetry},
    store::summary::{self, Counts, JobState},
};

/// Jobs per query of a sweep.
const PAGE_SIZE: i64 = 500;

/// Sends the notifications of jobs when they are due.
#[derive(Debug, Clone)]
pub struct Gate {
    pool: PgPool,
    n2: N2,
    waker: Waker,
}

impl Gate {
    /// A gate with these settings. Must be called inside a tokio runtime.
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

    /// Checks jobs that have new results.
    pub async fn check(&self, jobs: &[Uuid]) -> Result<(), Error> {
        for job in summary::candidates(&self.pool, jobs).await? {
            self.decide(job).await?;
        }
        Ok(())
    }

    /// Checks all open jobs: for results that were missed and deadlines that have passed. Returns the number of due jobs.
    pub async fn sweep(&self) -> Result<usize, Error> {
        let mut seen = 0;
        loop {
            let jobs = summary::overdue(&self.pool, self.n2.force_after, PAGE_SIZE).await?;
            seen += jobs.len();
            for (job, _) in &jobs {
                self.decide(*job).await?;
            }
            if i64::try_from(jobs.len()).unwrap_or(PAGE_SIZE) < PAGE_SIZE {
                return Ok(seen);
            }
        }
    }

    /// Locks the job, counts, and sends what is due. Idempotent.
    pub async fn decide(&self, job: Uuid) -> Result<(), Error> {
        let mut tx = self.pool.begin().await?;
        let force_after = self.n2.force_after;
        let Some(state) = summary::lock(&mut tx, job, force_after).await? else {
            return Ok(());
        };
        if state.closed {
            return Ok(());
        }
        let counts = summary::count(&mut tx, job).await?;
        let sent = self.send_due(&mut tx, job, state, counts).await?;
        if !sent {
            return Ok(());
        }
        postrider_crashpoint::point!("evidence.notify_before_commit")?;
        tx.commit().await?;
        self.waker.wake(&OUTBOX);
        Ok(())
    }

    /// Returns whether anything was written.
    async fn send_due(
        &self,
        tx: &mut PgConnection,
        job: Uuid,
        state: JobState,
        counts: Counts,
    ) -> Result<bool, Error> {
        if !state.n1_sent {
            if counts.untried > 0 {
                return Ok(false);
            }
            let errors = summary::errors(&mut *tx, job).await?;
            let body = n1_body(job, counts, &errors);
            summary::insert_notification(tx, job, "evidence.n1", false, &body).await?;
            tracing::info!(%job, attached = counts.attached, failed = counts.failed, "N1 is sent");
        }
        let settled = counts.retryable == 0;
        let forced = !settled && state.n1_sent && state.overdue;
        if !settled && !forced {
            return Ok(!state.n1_sent);
        }
        let retry_needed = counts.retried > 0 || counts.retryable > 0;
        if !retry_needed && self.n2.when_no_retry == WhenNoRetry::Skip {
            summary::close(tx, job).await?;
            return Ok(true);
        }
        let unsettled = if forced {
            let permanent = self.n2.mark_remaining_permanent;
            let revoked = summary::revoke_unsettled(&mut *tx, job, permanent).await?;
            if permanent {
                for code in &revoked {
                    gauges::permanent_failure(code, 1);
                }
            }
            revoked.len()
        } else {
            0
        };
        // Count again: a result may have been recorded between the first count and the revocation.
        let counts = if forced {
            summary::count(&mut *tx, job).await?
        } else {
            counts
        };
        let body = self
            .n2_body(tx, job, counts, unsettled, retry_needed, forced)
            .await?;
        summary::insert_notification(tx, job, "evidence.n2", forced, &body).await?;
        let since = state.since_n1.unwrap_or_default().max(0.0);
        if forced {
            gauges::n2_forced();
        }
        gauges::n2_latency(Duration::from_secs_f64(since));
        tracing::info!(%job, attached = counts.attached, unsettled, forced, "N2 is sent");
        Ok(true)
    }

    async fn n2_body(
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

fn n1_body(job: Uuid, counts: Counts, errors: &Value) -> Value {
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
