//! Leader leases: of all processes, one runs each periodic task.
//!
//! The promise: at any moment at most one live lease per name, judged by the database's clock; kept by a heartbeat,
//! given up on a clean stop, taken over by another process when the heartbeat stops. Each new leader has a higher
//! *term*.
//!
//! What is not promised: a leader that is paused (a stopped process, a stalled machine) does not know that it lost the
//! lease, so two runners are possible for a while. Every periodic task must be safe to run twice at once; the lease only
//! saves work. A task that can't be made so may fence itself: [`Leadership::fence`] in its transaction, or the term
//! written beside its effects.
//!
//! No session state is used, so a pooler in transaction mode is no obstacle. Give the leader a small pool of its own:
//! a heartbeat that waits for a connection behind busy workers would cost the leadership.

mod periodic;

use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

pub use periodic::{Periodic, Tick, run_periodic};

use crate::{Error, lock_wait};

/// Takes a vacant or expired lease. The clock is read after a competing campaign has let go of the row.
const CAMPAIGN: &str = "
insert into postrider.leader as l (name, holder, term, until)
values ($1, $2, 1, clock_timestamp() + make_interval(secs => $3))
on conflict (name) do update
   set holder = excluded.holder, term = l.term + 1,
       until = clock_timestamp() + make_interval(secs => $3), heartbeat = clock_timestamp()
   where l.until is null or l.until < clock_timestamp()
returning term";

/// Waiting candidates only read, so that they do not churn the row.
const IS_HELD: &str = "
select exists (select from postrider.leader where name = $1 and until >= clock_timestamp())";

/// The term alone is the fence: nobody else ever gets the same one. A late renewal is fine as long as nobody took over.
const RENEW: &str = "
update postrider.leader set until = clock_timestamp() + make_interval(secs => $3), heartbeat = clock_timestamp()
where name = $1 and term = $2 and holder is not null";

const RESIGN: &str = "
update postrider.leader set holder = null, until = null, heartbeat = clock_timestamp()
where name = $1 and term = $2 and holder is not null";

/// A share lock: whoever wants to take over waits until the task's transaction has ended. So that a paused leader can't
/// hold it for ever, the server ends the session when it idles for longer than a lease.
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

/// The leadership was taken over, or given up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the leadership of {name} in term {term} is over; what was about to be done is the next leader's task"
)]
pub struct LostLeadership {
    /// The periodic task.
    pub name: String,
    /// The term that ended.
    pub term: i64,
}

/// Why a fenced transaction may not go on.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// Somebody else leads now: roll back.
    #[error(transparent)]
    Lost(#[from] LostLeadership),
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// A row of the table of leaders, for people to see.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LeaderRow {
    /// The periodic task.
    pub name: String,
    /// The process that leads, if any.
    pub holder: Option<Uuid>,
    /// The current or last term.
    pub term: i64,
    /// Until when the lease holds.
    pub until: Option<time::OffsetDateTime>,
    /// The last sign of life.
    pub heartbeat: time::OffsetDateTime,
    /// When the task last ended, well or not.
    pub ran_at: Option<time::OffsetDateTime>,
    /// Does the lease still hold?
    pub live: bool,
}

/// All leaders, by name.
pub async fn all(connection: &mut PgConnection) -> Result<Vec<LeaderRow>, Error> {
    Ok(sqlx::query_as(ALL).fetch_all(connection).await?)
}

impl Leader {
    /// A candidate for this name, whose lease lasts so long without a heartbeat.
    pub fn new(pool: PgPool, name: impl Into<String>, lease: Duration) -> Result<Self, Error> {
        let name = name.into();
        if name.is_empty() || name.len() > 100 || name.contains('\0') {
            return Err(Error::invalid(
                "leader name",
                "it must have 1 to 100 bytes and no NUL character",
            ));
        }
        if lease < Duration::from_millis(100) || lease > Duration::from_secs(24 * 60 * 60) {
            return Err(Error::invalid(
                "leader lease",
                "it must be between 100 ms and a day",
            ));
        }
        Ok(Self {
            pool,
            name,
            holder: Uuid::now_v7(),
            lease,
        })
    }

    /// Tries once to become the leader; none if somebody else is.
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

/// A lease that is held, as far as this process knows. Dropping it gives it up in the background.
#[derive(Debug)]
pub struct Leadership {
    leader: Leader,
    term: i64,
    over: bool,
}

impl Leadership {
    /// The term: higher than that of every leader before.
    #[must_use]
    pub const fn term(&self) -> i64 {
        self.term
    }

    /// The periodic task.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.leader.name
    }

    /// A heartbeat: prolongs the lease. False if somebody else has taken over.
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
    /// the transaction has ended. Keep that transaction short, for heartbeats wait for it too.
    pub async fn fence(&self, tx: &mut PgConnection) -> Result<(), FenceError> {
        fence(tx, &self.leader.name, self.term, self.leader.lease).await
    }

    /// Gives the lease up, so that another process need not wait for its end.
    pub async fn resign(mut self) -> Result<(), Error> {
        self.mark_over();
        give_up(&self.leader, self.term).await
    }

    /// Nothing is left to give up.
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
        // Without a runtime the lease simply runs out.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = give_up(&leader, term).await {
                    tracing::debug!(name = leader.name, %error, "could not resign; the lease will run out");
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
