//! Leader election: of all processes, one runs each periodic task.
//!
//! At any moment there is at most one valid lease per name, by the database's clock. It is kept by a heartbeat,
//! released on a clean stop, and taken over by another process when the heartbeat stops. Each new leader has a higher
//! *term*.
//!
//! What is not promised: a leader that is paused (a stopped process, a stalled machine) doesn't know that it lost the
//! lease, so two runners are possible for a while. Every periodic task must be safe to run twice at once; the lease
//! only saves work. A task that can't be made so can fence itself: [`Leadership::fence`] in its transaction, or the
//! term stored with its effects.
//!
//! No session state is used, so a pooler in transaction mode works. Give the leader a small pool of its own: a
//! heartbeat that waits for a connection behind busy workers would cost the leadership.

mod periodic;

use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

pub use periodic::{Periodic, Tick, run_periodic};

use crate::{Error, lock_wait};

/// Takes a vacant or expired lease. The clock is read after a competing candidate has released the row.
const CAMPAIGN: &str = "
insert into postrider.leader as l (name, holder, term, until)
values ($1, $2, 1, clock_timestamp() + make_interval(secs => $3))
on conflict (name) do update
   set holder = excluded.holder, term = l.term + 1,
       until = clock_timestamp() + make_interval(secs => $3), heartbeat = clock_timestamp()
   where l.until is null or l.until < clock_timestamp()
returning term";

/// Waiting candidates only read, so that they don't churn the row.
const IS_HELD: &str = "
select exists (select from postrider.leader where name = $1 and until >= clock_timestamp())";

/// The term alone is the fence: no other leader ever gets the same one. A late renewal is fine unless somebody took
/// over.
const RENEW: &str = "
update postrider.leader set until = clock_timestamp() + make_interval(secs => $3), heartbeat = clock_timestamp()
where name = $1 and term = $2 and holder is not null";

const RESIGN: &str = "
update postrider.leader set holder = null, until = null, heartbeat = clock_timestamp()
where name = $1 and term = $2 and holder is not null";

/// A share lock: a takeover waits until the task's transaction has ended. A paused leader can't hold it forever,
/// because the server ends the session when it idles for longer than a lease.
const FENCE: &str = "
with bound as materialized (select set_config('idle_in_transaction_session_timeout', $3, true)),
     current as materialized (select 1 from postrider.leader
                              where name = $1 and term = $2 and holder is not null for share)
select exists (select from current) from bound";

const ALL: &str = "
select name, holder, term, until, heartbeat, ran_at, coalesce(until >= clock_timestamp(), false) as live
from postrider.leader order by name";

/// A candidate for one name.
#[derive(Debug, Clone)]
pub struct Leader {
    pool: PgPool,
    name: String,
    holder: Uuid,
    lease: Duration,
}

/// The leadership was taken over or resigned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the leadership of {name} in term {term} is over; roll back and leave the task to the next leader"
)]
pub struct LostLeadership {
    /// Name of the periodic task.
    pub name: String,
    /// The term that ended.
    pub term: i64,
}

/// Why a fenced transaction may not continue.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// Another process leads now: roll back.
    #[error(transparent)]
    Lost(#[from] LostLeadership),
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// A row of the leader table, for display.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LeaderRow {
    /// Name of the periodic task.
    pub name: String,
    /// The leading process, if any.
    pub holder: Option<Uuid>,
    /// The current or last term.
    pub term: i64,
    /// When the lease expires.
    pub until: Option<time::OffsetDateTime>,
    /// The last heartbeat.
    pub heartbeat: time::OffsetDateTime,
    /// When the task last ended, successfully or not.
    pub ran_at: Option<time::OffsetDateTime>,
    /// Whether the lease is still valid.
    pub live: bool,
}

/// Lists all leaders by name.
pub async fn all(connection: &mut PgConnection) -> Result<Vec<LeaderRow>, Error> {
    Ok(sqlx::query_as(ALL).fetch_all(connection).await?)
}

impl Leader {
    /// Creates a candidate for this name, whose lease lasts this long without a heartbeat.
    pub fn new(pool: PgPool, name: impl Into<String>, lease: Duration) -> Result<Self, Error> {
        let name = name.into();
        if name.is_empty() || name.len() > 100 || name.contains('\0') {
            return Err(Error::invalid(
                "leader name",
                "must have 1 to 100 bytes and no NUL character",
            ));
        }
        if lease < Duration::from_millis(100) || lease > Duration::from_secs(24 * 60 * 60) {
            return Err(Error::invalid(
                "leader lease",
                "must be between 100 ms and one day",
            ));
        }
        Ok(Self {
            pool,
            name,
            holder: Uuid::now_v7(),
            lease,
        })
    }

    /// Tries once to become the leader; returns None if another process is.
    pub async fn campaign(&self) -> Result<Option<Leadership>, Error> {
        let held: bool = sqlx::query_scalar(IS_HELD)
            .bind(&self.name)
            .fetch_one(&self.pool)
            .await?;
        if held {
            return Ok(None);
        }
        let term: Option<i64> = sqlx::query_scalar(CAMPAIGN)
            .bind(&self.name)
            .bind(self.holder)
            .bind(self.lease.as_secs_f64())
            .fetch_optional(&self.pool)
            .await?;
        if term.is_some() {
            postrider_crashpoint::point!("leader.campaigned")?;
        }
        Ok(term.map(|term| {
            tracing::info!(name = self.name, term, "became the leader");
            metrics::gauge!("postrider_leader_held", "name" => self.name.clone()).set(1.0);
            Leadership {
                leader: self.clone(),
                term,
                over: false,
            }
        }))
    }
}

/// A lease held, as far as this process knows. Dropping it releases the lease in the background.
#[derive(Debug)]
pub struct Leadership {
    leader: Leader,
    term: i64,
    over: bool,
}

impl Leadership {
    /// The term: higher than that of every earlier leader.
    #[must_use]
    pub const fn term(&self) -> i64 {
        self.term
    }

    /// Name of the periodic task.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.leader.name
    }

    /// Extends the lease. Returns false if another process has taken over.
    pub async fn renew(&mut self) -> Result<bool, Error> {
        let leader = &self.leader;
        let done = sqlx::query(RENEW)
            .bind(&leader.name)
            .bind(self.term)
            .bind(leader.lease.as_secs_f64())
            .execute(&leader.pool)
            .await?;
        if done.rows_affected() == 0 {
            self.mark_over();
            return Ok(false);
        }
        postrider_crashpoint::point!("leader.renewed")?;
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        #[allow(clippy::cast_precision_loss, reason = "a gauge is a double")]
        metrics::gauge!("postrider_leader_heartbeat_timestamp_seconds", "name" => leader.name.clone()).set(now as f64);
        Ok(true)
    }

    /// Makes the caller's transaction depend on this term: it fails if the term is over, and nobody takes over before
    /// the transaction has ended. Keep that transaction short, because heartbeats wait for it too.
    pub async fn fence(&self, tx: &mut PgConnection) -> Result<(), FenceError> {
        fence(tx, &self.leader.name, self.term, self.leader.lease).await
    }

    /// Releases the lease, so that another process doesn't have to wait for it to expire.
    pub async fn resign(mut self) -> Result<(), Error> {
        self.mark_over();
        give_up(&self.leader, self.term).await
    }

    /// Nothing is left to release.
    fn mark_over(&mut self) {
        if !std::mem::replace(&mut self.over, true) {
            metrics::gauge!("postrider_leader_held", "name" => self.leader.name.clone()).set(0.0);
        }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.mark_over();
        let (leader, term) = (self.leader.clone(), self.term);
        // Without a runtime, the lease simply expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = give_up(&leader, term).await {
                    tracing::debug!(name = leader.name, %error, "could not release the leadership; its lease expires by itself");
                }
            });
        }
    }
}

async fn give_up(leader: &Leader, term: i64) -> Result<(), Error> {
    postrider_crashpoint::point!("leader.before_resign")?;
    sqlx::query(RESIGN)
        .bind(&leader.name)
        .bind(term)
        .execute(&leader.pool)
        .await?;
    Ok(())
}

/// [`Leadership::fence`] for a task that knows only the name and the term.
async fn fence(
    tx: &mut PgConnection,
    name: &str,
    term: i64,
    lease: Duration,
) -> Result<(), FenceError> {
    let current: bool = sqlx::query_scalar(FENCE)
        .bind(name)
        .bind(term)
        .bind(lock_wait::setting(lease))
        .fetch_one(tx)
        .await
        .map_err(Error::Database)?;
    if current {
        Ok(())
    } else {
        Err(LostLeadership {
            name: name.to_owned(),
            term,
        }
        .into())
    }
}
