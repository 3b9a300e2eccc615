//! A work table with every column under its canonical name, read in bounded windows.

use super::probe::{CheckError, Probe};
use super::{Limits, probe};
use postrider::lease::{Finish, WorkTable};

/// A work table and the SQL fragments to read it. They contain only numbers and the descriptor's constants.
pub(super) struct TableView<'a> {
    pub table: &'static WorkTable,
    pub limits: &'a Limits,
    /// The claim index begins with the kind, so windows are read kind by kind.
    pub by_kind: bool,
}

/// Items of a window that match a condition.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Matches {
    /// Number of items read.
    pub scanned: i64,
    /// Number of items that match.
    pub count: i64,
    /// How long the oldest has matched, in seconds.
    pub oldest: f64,
    /// Some of their ids.
    pub ids: Vec<i64>,
}

impl Matches {
    /// `3 items`, or `at least 3 items` if the window didn't cover all.
    fn items(&self, reach: u32) -> String {
        let least = if self.scanned >= i64::from(reach) {
            "at least "
        } else {
            ""
        };
        let noun = if self.count == 1 { "item" } else { "items" };
        format!("{least}{} {noun}", self.count)
    }
}

impl<'a> TableView<'a> {
    /// Finds out which claim index the table has.
    pub async fn load(probe: &Probe<'a>, table: &'static WorkTable) -> Result<Self, CheckError> {
        let by_kind = match table.kind {
            None => false,
            Some(kind) => {
                let sql = format!(
                    "select count(*) > 0 from pg_index i where i.indrelid = '{}'::regclass
and {} and i.indisvalid",
                    table.name,
                    claims(table, Some(kind)),
                );
                probe.query_one::<(bool,)>(sql).await?.0
            }
        };
        Ok(Self {
            table,
            limits: probe.limits,
            by_kind,
        })
    }

    pub fn name(&self) -> &'static str {
        self.table.name
    }

    fn select(&self) -> String {
        let c = &self.table.columns;
        let or_null = |column: Option<&str>| {
            column.map_or("null::text".to_owned(), |column| {
                format!("t.{column}::text")
            })
        };
        format!(
            "select t.{id} as id, t.{state}::text as state, t.{attempts}::integer as attempts, t.{due} as due,
    t.{until} as until, t.{fence} as fence, t.{owner}::text as owner, t.{losses}::integer as losses,
    t.{finished} as finished, t.{code}::text as code, left(t.{message}::text, 500) as message,
    {parked} as parked, coalesce({kind}, '') as kind, {key} as key, {given_up} as given_up
from {table} t",
            table = self.table.name,
            id = c.id,
            state = c.state,
            attempts = c.attempts,
            due = c.due,
            until = c.lease_until,
            fence = c.fence,
            owner = c.owner,
            losses = c.losses,
            finished = c.finished,
            code = c.error_code,
            message = c.error_message,
            parked = or_null(c.parked),
            kind = or_null(self.table.kind),
            key = or_null(self.table.ordering.map(|ordering| ordering.column)),
            // Items that an operator ended have no cause.
            given_up = c
                .cause
                .map_or("true".to_owned(), |cause| format!("t.{cause} is not null")),
        )
    }

    /// Unfinished items in claim order, by the claim index. Leased ones are near its beginning.
    pub fn head(&self) -> String {
        self.unfinished("")
    }

    /// Unfinished items that are never due: a range at the end of the claim index.
    pub fn parked(&self) -> String {
        self.unfinished(&format!("and t.{} = 'infinity'", self.table.columns.due))
    }

    fn unfinished(&self, filter: &str) -> String {
        let c = &self.table.columns;
        let (table, finished) = (self.table.name, c.finished);
        let select = self.select();
        let order = format!("order by t.{}, t.{}", c.due, c.id);
        match self.table.kind {
            Some(kind) if self.by_kind => format!(
                "(with recursive kinds (kind) as (
    (select t.{kind} from {table} t where t.{finished} is null order by t.{kind} limit 1)
    union all
    select (select t.{kind} from {table} t where t.{finished} is null and t.{kind} > k.kind order by t.{kind} limit 1)
    from kinds k where k.kind is not null)
select x.* from kinds k cross join lateral (
    {select} where t.{finished} is null and t.{kind} = k.kind {filter} {order} limit {reach}) x
limit {window}) w",
                reach = self.reach(),
                window = self.limits.window
            ),
            _ => format!(
                "({select} where t.{finished} is null {filter} {order} limit {}) w",
                self.limits.window
            ),
        }
    }

    /// If a window has this many rows, there may be more.
    fn reach(&self) -> u32 {
        if self.by_kind {
            (self.limits.window / 10).max(1)
        } else {
            self.limits.window
        }
    }

    /// The oldest and the newest rows, finished or not, by the primary key.
    pub fn ends(&self) -> String {
        let id = self.table.columns.id;
        let n = self.limits.window;
        let select = self.select();
        format!(
            "(({select} order by t.{id} limit {n}) union ({select} order by t.{id} desc limit {n})) w"
        )
    }

    /// Dead items. Where done items stay in the table, only the id is sure to have an index.
    pub fn dead(&self) -> String {
        let window = match self.table.finish {
            Finish::Keep => self.ends(),
            Finish::Delete | Finish::Move { .. } => format!(
                "({select} where t.{finished} is not null order by t.{finished} desc limit {n}) w",
                select = self.select(),
                finished = self.table.columns.finished,
                n = self.limits.window
            ),
        };
        format!(
            "(select * from {window} where w.state = '{}' and w.given_up) d",
            self.table.states.dead
        )
    }

    /// The states in which an item is finished, as SQL literals.
    pub fn terminal(&self) -> String {
        let s = &self.table.states;
        let states: Vec<String> = [Some(s.done), Some(s.dead), s.cancelled, s.archived]
            .into_iter()
            .flatten()
            .map(|state| format!("'{state}'"))
            .collect();
        states.join(", ")
    }

    /// Items of a window that match `condition`; `since` is the time from which they do.
    pub async fn find_since(
        &self,
        probe: &Probe<'_>,
        window: &str,
        condition: &str,
        since: &str,
    ) -> Result<Matches, CheckError> {
        // An infinite age has no number; the condition covers it.
        let sql = format!(
            "select count(*) as scanned, count(*) filter (where {condition}) as count,
    coalesce(max(extract(epoch from clock_timestamp() - {since})) filter (where {condition}), 0)::float8 as oldest,
    coalesce((array_agg(w.id order by w.id) filter (where {condition}))[1:{sample}], '{{}}') as ids
from {window}",
            sample = self.limits.sample,
        );
        probe.query_one(sql).await
    }

    /// The same for conditions without a start time.
    pub async fn find(
        &self,
        probe: &Probe<'_>,
        window: &str,
        condition: &str,
    ) -> Result<Matches, CheckError> {
        self.find_since(probe, window, condition, "clock_timestamp()")
            .await
    }

    /// An issue about the matches, or none.
    pub fn issues(
        &self,
        matches: &Matches,
        severity: super::Severity,
        what: impl FnOnce(String) -> String,
        advice: &str,
    ) -> Vec<probe::Issue> {
        if matches.count == 0 {
            return Vec::new();
        }
        let text = what(matches.items(self.reach()));
        vec![probe::Issue::new(severity, text, advice).items(&matches.ids, self.limits.sample)]
    }
}

/// Definition of a claim index `i`: (due, id), optionally preceded by the kind, over exactly the unfinished rows.
pub(super) fn claims(table: &WorkTable, kind: Option<&str>) -> String {
    let c = &table.columns;
    let columns: Vec<&str> = kind.into_iter().chain([c.due, c.id]).collect();
    let columns: Vec<String> = (1..)
        .zip(columns)
        .map(|(position, name)| {
            format!("pg_get_indexdef(i.indexrelid, {position}, false) = '{name}'")
        })
        .collect();
    format!(
        "{} and pg_get_expr(i.indpred, i.indrelid) = '({} IS NULL)'",
        columns.join(" and "),
        c.finished
    )
}
