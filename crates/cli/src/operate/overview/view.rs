//! What an overview says, as every door shows it.

use std::fmt;

use postrider::{breaker::BreakerRow, leader::LeaderRow};
use postrider_inspect::queue_stats::{CAP, WorkerRow};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// How everything is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// When this was found, by the database's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// How far back the series go.
    pub window_seconds: i64,
    /// How long each piece of a series is.
    pub step_seconds: i64,
    /// Each service; `messages` is what goes between them.
    pub services: Vec<ServiceView>,
    /// Outside parties that failed lately.
    pub breakers: Vec<BreakerView>,
    /// Who does what is done by one at a time.
    pub leaders: Vec<LeaderView>,
    /// Who works.
    pub workers: Vec<WorkerView>,
}

/// A number that is not counted to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// At least so many.
    pub count: i64,
    /// There are more than that.
    pub more: bool,
}

impl Amount {
    /// As the engine counts: one above its cap means more.
    #[must_use]
    pub fn counted(count: i64) -> Self {
        Self {
            count: count.min(CAP),
            more: count > CAP,
        }
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            more: self.more || other.more,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}{}", self.count, if self.more { "+" } else { "" });
        f.pad(&text)
    }
}

/// One service.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// Its name.
    #[schema(example = "orders")]
    pub name: String,
    /// Due, and nobody works on it yet.
    pub ready: Amount,
    /// Somebody works on it.
    pub leased: Amount,
    /// Due later.
    pub waiting: Amount,
    /// Not due until something else has happened.
    pub parked: Amount,
    /// Given up.
    pub dead: Amount,
    /// For how long the oldest that is due has waited; absent when nothing is due.
    pub oldest_seconds: Option<f64>,
    /// Done within the last minute.
    pub done_per_minute: f64,
    /// How well it goes, over the whole series.
    pub success: Success,
    /// Its work tables.
    pub tables: Vec<TableView>,
    /// What ended, oldest first; the last piece is not over yet.
    pub series: Vec<Point>,
}

/// One work table.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TableView {
    /// Its name in the database.
    #[schema(example = "orders.outbox_orders")]
    pub name: String,
    /// Due, and nobody works on it yet.
    pub ready: Amount,
    /// Somebody works on it.
    pub leased: Amount,
    /// Due later.
    pub waiting: Amount,
    /// Not due until something else has happened.
    pub parked: Amount,
    /// Given up.
    pub dead: Amount,
    /// For how long the oldest that is due has waited; absent when nothing is due.
    pub oldest_seconds: Option<f64>,
    /// Done within the last minute.
    pub done_per_minute: f64,
}

/// How well it goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Success {
    /// Done at the first attempt.
    pub first_attempt: i64,
    /// Done after at least one failure.
    pub after_retry: i64,
    /// Given up.
    pub dead: i64,
    /// The part of all that ended that was done at the first attempt, from 0 to 1; absent when nothing ended.
    pub first_attempt_rate: Option<f64>,
    /// The part of all that ended that was done in the end, from 0 to 1; absent when nothing ended.
    pub rate: Option<f64>,
}

impl Success {
    pub(super) fn over(series: &[Point]) -> Self {
        let sum = |of: fn(&Point) -> i64| series.iter().map(of).sum::<i64>();
        let (done, after_retry, dead) = (
            sum(|p| p.done),
            sum(|p| p.done_after_retry),
            sum(|p| p.dead),
        );
        // The journal and the count of what is done are two records: one may be a moment ahead.
        let first_attempt = (done - after_retry).max(0);
        let ended = first_attempt + after_retry + dead;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let part = |of: i64| (ended > 0).then(|| of as f64 / ended as f64);
        Self {
            first_attempt,
            after_retry,
            dead,
            first_attempt_rate: part(first_attempt),
            rate: part(first_attempt + after_retry),
        }
    }
}

/// What ended in one piece of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// When it begins, in seconds since 1970.
    pub at: i64,
    /// Done.
    pub done: i64,
    /// Of these, done after a failure.
    pub done_after_retry: i64,
    /// Attempts that failed and are made again.
    pub retries: i64,
    /// Given up.
    pub dead: i64,
}

impl Point {
    pub(super) const fn at(at: i64) -> Self {
        Self {
            at,
            done: 0,
            done_after_retry: 0,
            retries: 0,
            dead: 0,
        }
    }

    pub(super) fn add(&mut self, what: &str, count: i64) {
        match what {
            "done" => self.done += count,
            "done_after_retry" => self.done_after_retry += count,
            "retry" => self.retries += count,
            "dead" => self.dead += count,
            _ => {}
        }
    }

    pub(super) const fn join(&mut self, other: Self) {
        self.done += other.done;
        self.done_after_retry += other.done_after_retry;
        self.retries += other.retries;
        self.dead += other.dead;
    }
}

/// An outside party, as the worst off of our processes sees it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BreakerView {
    /// Who it is.
    pub dependency: String,
    /// `closed` (it is called), `open` (nobody calls it) or `half_open` (somebody tries).
    pub state: String,
    /// In so many processes.
    pub processes: usize,
    /// Signs of unavailability since its last answer.
    pub failures: i64,
    /// Until when nobody calls.
    #[serde(with = "time::serde::rfc3339::option")]
    pub open_until: Option<OffsetDateTime>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

impl BreakerView {
    /// One line for each dependency, from the rows of all processes.
    pub(super) fn all(rows: &[BreakerRow]) -> Vec<Self> {
        let severity = |state: &str| match state {
            "open" => 2,
            "half_open" => 1,
            _ => 0,
        };
        let mut views: Vec<Self> = Vec::new();
        for row in rows {
            match views
                .iter_mut()
                .find(|view| view.dependency == row.dependency)
            {
                Some(view) => {
                    view.processes += 1;
                    view.failures = view.failures.max(row.failures);
                    if severity(&row.state) > severity(&view.state) {
                        row.state.clone_into(&mut view.state);
                        (view.open_until, view.since) = (row.open_until, row.changed_at);
                    }
                }
                None => views.push(Self {
                    dependency: row.dependency.clone(),
                    state: row.state.clone(),
                    processes: 1,
                    failures: row.failures,
                    open_until: row.open_until,
                    since: row.changed_at,
                }),
            }
        }
        views
    }
}

/// A task that one process at a time runs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LeaderView {
    /// The task.
    pub name: String,
    /// The process that runs it.
    pub holder: Option<Uuid>,
    /// Grows with each new leader.
    pub term: i64,
    /// Its last sign of life.
    #[serde(with = "time::serde::rfc3339")]
    pub heartbeat: OffsetDateTime,
    /// When the task last ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ran_at: Option<OffsetDateTime>,
    /// Does somebody lead?
    pub live: bool,
}

impl From<LeaderRow> for LeaderView {
    fn from(row: LeaderRow) -> Self {
        Self {
            name: row.name,
            holder: row.holder,
            term: row.term,
            heartbeat: row.heartbeat,
            ran_at: row.ran_at,
            live: row.live,
        }
    }
}

/// A worker.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// Unique to its process.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it takes work from.
    pub work_table: String,
    /// What it handles; absent: everything.
    pub kinds: Option<Vec<String>>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// Its last sign of life.
    #[serde(with = "time::serde::rfc3339")]
    pub seen_at: OffsetDateTime,
    /// Was that recent enough?
    pub alive: bool,
}

impl From<WorkerRow> for WorkerView {
    fn from(row: WorkerRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            work_table: row.work_table,
            kinds: row.kinds,
            started_at: row.started_at,
            seen_at: row.seen_at,
            alive: row.alive,
        }
    }
}
