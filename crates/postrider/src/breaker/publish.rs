//! Publishes the breakers of all processes in one table.
//!
//! Only the latest state of each dependency waits to be written, so an unavailable database costs no memory, and a
//! breaker never waits for it.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Breakers, State, lock};
use crate::Error;

const WRITE: &str = "
insert into postrider.breaker (dependency, process, state, failures, open_until)
values ($1, $2, $3, $4, clock_timestamp() + make_interval(secs => $5))
on conflict (dependency, process) do update
   set state = excluded.state, failures = excluded.failures,
       open_until = excluded.open_until, changed_at = excluded.changed_at";

/// Rows of dead processes, and of breakers that have been closed for a day.
const SWEEP: &str =
    "delete from postrider.breaker where changed_at < clock_timestamp() - interval '1 day'";

const DELETE_PROCESS: &str = "delete from postrider.breaker where process = $1";

/// An open breaker whose time is over waits for a probe.
const ALL: &str = "
select dependency, process,
       case when state = 'open' and open_until < clock_timestamp() then 'half_open' else state end as state,
       failures, open_until, changed_at
from postrider.breaker order by dependency, process";

/// A breaker of some process, for display.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BreakerRow {
    /// The dependency.
    pub dependency: String,
    /// The process.
    pub process: Uuid,
    /// `closed`, `open` or `half_open`.
    pub state: String,
    /// Number of signs of unavailability since the last answer.
    pub failures: i64,
    /// When calls are allowed again.
    pub open_until: Option<OffsetDateTime>,
    /// When the state changed.
    pub changed_at: OffsetDateTime,
}

/// Lists the breakers of all processes that opened lately.
pub async fn all(connection: &mut PgConnection) -> Result<Vec<BreakerRow>, Error> {
    Ok(sqlx::query_as(ALL).fetch_all(connection).await?)
}

/// A transition that isn't written yet.
#[derive(Debug, Clone)]
struct Notice {
    state: State,
    failures: u64,
    open_for: Option<Duration>,
}

/// The latest unwritten transition of each dependency.
#[derive(Debug, Default)]
pub(super) struct Board {
    notices: Mutex<HashMap<String, Notice>>,
    posted: Notify,
}

impl Board {
    pub(super) fn post(
        &self,
        dependency: &str,
        failures: u64,
        state: State,
        open_for: Option<Duration>,
    ) {
        lock(&self.notices).insert(
            dependency.to_owned(),
            Notice {
                state,
                failures,
                open_for,
            },
        );
        self.posted.notify_one();
    }

    /// Puts back what could not be written, unless there is a newer transition.
    fn put_back(&self, notices: HashMap<String, Notice>) {
        let mut current = lock(&self.notices);
        for (dependency, notice) in notices {
            current.entry(dependency).or_insert(notice);
        }
    }
}

/// Writes transitions as they happen, until `stop`; then removes this process's rows.
pub async fn publish(pool: PgPool, breakers: Breakers, stop: CancellationToken) {
    let process = Uuid::now_v7();
    let board = &breakers.board;
    while !stop.is_cancelled() {
        tokio::select! {
            () = board.posted.notified() => {}
            () = stop.cancelled() => break,
        }
        let notices = std::mem::take(&mut *lock(&board.notices));
        if let Err(error) = write(&pool, process, &notices).await {
            tracing::warn!(%error, "could not publish the state of circuit breakers; retrying");
            board.put_back(notices);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => board.posted.notify_one(),
                () = stop.cancelled() => {}
            }
        }
    }
    if let Err(error) = sqlx::query(DELETE_PROCESS)
        .bind(process)
        .execute(&pool)
        .await
    {
        tracing::debug!(%error, "could not remove the published breakers; they expire after a day");
    }
}

async fn write(
    pool: &PgPool,
    process: Uuid,
    notices: &HashMap<String, Notice>,
) -> Result<(), sqlx::Error> {
    for (dependency, notice) in notices {
        sqlx::query(WRITE)
            .bind(dependency)
            .bind(process)
            .bind(notice.state.as_str())
            .bind(i64::try_from(notice.failures).unwrap_or(i64::MAX))
            .bind(notice.open_for.map(|left| left.as_secs_f64()))
            .execute(pool)
            .await?;
    }
    sqlx::query(SWEEP).execute(pool).await?;
    Ok(())
}
