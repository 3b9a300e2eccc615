//! The overview as the API, the console and the CLI show it.

use std::fmt;

use postrider::{breaker::BreakerRow, leader::LeaderRow};
use postrider_inspect::queue_stats::{CAP, WorkerRow};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// The overview.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// Time of the overview, by the database's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Length of the series.
    pub window_seconds: i64,
    /// Length of an interval of a series.
    pub step_seconds: i64,
    /// Each service; `messages` are the messages between them.
    pub services: Vec<ServiceView>,
    /// Outside services that failed recently.
    pub breakers: Vec<BreakerView>,
    /// Tasks that run in one process at a time.
    pub leaders: Vec<LeaderView>,
    /// Workers.
    pub workers: Vec<WorkerView>,
}

/// A count with an upper bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// The count.
    pub count: i64,
    /// There are more than `count`.
    pub more: bool,
}

impl Amount {
    /// From a bounded count: one above the bound means more.
    #[must_use]
    pub fn counted(count: i64) -> Self {
        Self {
            count: count.min(CAP),
            more: count > CAP,
        }
    }

    /// The sum.
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
    /// Due and not started.
    pub ready: Amount,
    /// In progress.
    pub leased: Amount,
    /// Scheduled for later.
    pub waiting: Amount,
    /// Parked until something else has happened.
    pub parked: Amount,
    /// Dead letters.
    pub dead: Amount,
    /// Age of the oldest due item; absent when nothing is due.
    pub oldest_seconds: Option<f64>,
    /// Throughput per minute.
    pub done_per_minute: f64,
    /// Success rates over the whole series.
    pub success: Success,
    /// Its work tables.
    pub tables: Vec<TableView>,
    /// What ended per interval, oldest first; the last interval is still running.
    pub series: Vec<Point>,
}

/// One work table.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TableView {
    /// Its name in the database.
    #[schema(example = "orders.outbox_orders")]
    pub name: String,
    /// Due and not started.
    pub ready: Amount,
    /// In progress.
    pub leased: Amount,
    /// Scheduled for later.
    pub waiting: Amount,
    /// Parked until something else has happened.
    pub parked: Amount,
    /// Dead letters.
    pub dead: Amount,
    /// Age of the oldest due item; absent when nothing is due.
    pub oldest_seconds: Option<f64>,
    /// Throughput per minute.
    pub done_per_minute: f64,
}

/// Success rates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Success {
    /// Done on the first attempt.
    pub first_attempt: i64,
    /// Done after at least one retry.
    pub after_retry: i64,
    /// Dead letters.
    pub dead: i64,
    /// Share of all ended items that were done on the first attempt, from 0 to 1; absent when nothing ended.
    pub first_attempt_rate: Option<f64>,
    /// Share of all ended items that were done, from 0 to 1; absent when nothing ended.
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
        // Attempts and completions are two records: one may be a moment ahead.
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

/// What ended in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Point {
    /// Start, in seconds since 1970.
    pub at: i64,
    /// Done.
    pub done: i64,
    /// Of these, done after a retry.
    pub done_after_retry: i64,
    /// Failed attempts that are retried.
    pub retries: i64,
    /// Dead letters.
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

/// A breaker, in its worst state over all processes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BreakerView {
    /// The outside service.
    pub dependency: String,
    /// `closed` (calls pass), `open` (calls are blocked) or `half_open` (a trial call).
    pub state: String,
    /// Number of processes that report it.
    pub processes: usize,
    /// Failures since its last success.
    pub failures: i64,
    /// Calls are blocked until then.
    #[serde(with = "time::serde::rfc3339::option")]
    pub open_until: Option<OffsetDateTime>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

impl BreakerView {
    /// One view per dependency, from the rows of all processes.
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

/// A task that runs in one process at a time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LeaderView {
    /// The task.
    pub name: String,
    /// The process that runs it.
    pub holder: Option<Uuid>,
    /// Grows with each new leader.
    pub term: i64,
    /// Its last heartbeat.
    #[serde(with = "time::serde::rfc3339")]
    pub heartbeat: OffsetDateTime,
    /// When the task last ended.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ran_at: Option<OffsetDateTime>,
    /// It has a live leader.
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
    /// Its id, as attempts and timelines show it.
    pub id: String,
    /// Host and process id.
    pub name: String,
    /// Its work table.
    pub work_table: String,
    /// The kinds that it handles; absent: all.
    pub kinds: Option<Vec<String>>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// Its last heartbeat.
    #[serde(with = "time::serde::rfc3339")]
    pub seen_at: OffsetDateTime,
    /// The heartbeat is recent.
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
