//! One work table in the doctor's words: every column under its canonical name, read in bounded windows.

use super::exam::{Exam, Unanswered};
use super::{Limits, exam};
use crate::lease::{Finish, WorkTable};

/// A work table and the pieces of SQL to look at it. Only the descriptor's constants and numbers go into them.
pub(super) struct Words<'a> {
    pub table: &'static WorkTable,
    pub limits: &'a Limits,
}

/// What a look at a window of items brought.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Seen {
    /// How many were looked at.
    pub looked: i64,
    /// How many of them offend.
    pub count: i64,
    /// For how long, in seconds, the worst has done so.
    pub oldest: f64,
    /// Some of them.
    pub ids: Vec<i64>,
}

impl Seen {
    /// `3 items`, or `at least 3 items` when the window did not reach all.
    pub fn items(&self, window: u32) -> String {
        let least = if self.looked >= i64::from(window) {
            "at least "
        } else {
            ""
        };
        let noun = if self.count == 1 { "item" } else { "items" };
        format!("{least}{} {noun}", self.count)
    }
}

impl<'a> Words<'a> {
    pub fn new(table: &'static WorkTable, limits: &'a Limits) -> Self {
        Self { table, limits }
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
    {parked} as parked, coalesce({kind}, '') as kind, {key} as key
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
        )
    }

    /// Unfinished items, first due first: by the claim index. Leased ones are near its beginning.
    pub fn head(&self) -> String {
        let c = &self.table.columns;
        format!(
            "({select} where t.{finished} is null order by t.{due}, t.{id} limit {n}) w",
            select = self.select(),
            finished = c.finished,
            due = c.due,
            id = c.id,
            n = self.limits.window
        )
    }

    /// Unfinished items that are never due: a range at the end of the claim index.
    pub fn parked(&self) -> String {
        let c = &self.table.columns;
        format!(
            "({select} where t.{finished} is null and t.{due} = 'infinity' order by t.{due}, t.{id} limit {n}) w",
            select = self.select(),
            finished = c.finished,
            due = c.due,
            id = c.id,
            n = self.limits.window
        )
    }

    /// The oldest and the newest rows, finished or not: by the primary key.
    pub fn ends(&self) -> String {
        let id = self.table.columns.id;
        let n = self.limits.window;
        let select = self.select();
        format!(
            "(({select} order by t.{id} limit {n}) union ({select} order by t.{id} desc limit {n})) w"
        )
    }

    /// Dead items. Where done items stay in the table nothing but the id has an index for certain.
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
            "(select * from {window} where w.state = '{}') d",
            self.table.states.dead
        )
    }

    /// The states in which an item is finished, as SQL literals.
    pub fn terminal(&self) -> String {
        let s = &self.table.states;
        let words: Vec<String> = [Some(s.done), Some(s.dead), s.cancelled, s.archived]
            .into_iter()
            .flatten()
            .map(|word| format!("'{word}'"))
            .collect();
        words.join(", ")
    }

    /// Looks at a window for items on which `condition` holds; `since` says for how long.
    pub async fn look(
        &self,
        exam: &Exam<'_>,
        window: &str,
        condition: &str,
        since: &str,
    ) -> Result<Seen, Unanswered> {
        // Infinite ages have no number; they are told by the condition itself.
        let sql = format!(
            "select count(*) as looked, count(*) filter (where {condition}) as count,
    coalesce(max(extract(epoch from clock_timestamp() - {since})) filter (where {condition}), 0)::float8 as oldest,
    coalesce((array_agg(w.id order by w.id) filter (where {condition}))[1:{sample}], '{{}}') as ids
from {window}",
            sample = self.limits.sample,
        );
        exam.ask_one(sql).await
    }

    /// The same for offences that have no beginning.
    pub async fn find(
        &self,
        exam: &Exam<'_>,
        window: &str,
        condition: &str,
    ) -> Result<Seen, Unanswered> {
        self.look(exam, window, condition, "clock_timestamp()")
            .await
    }

    /// A complaint about what was seen, or none.
    pub fn complain(
        &self,
        seen: &Seen,
        severity: super::Severity,
        what: impl FnOnce(String) -> String,
        advice: &str,
    ) -> Vec<exam::Complaint> {
        if seen.count == 0 {
            return Vec::new();
        }
        let text = what(seen.items(self.limits.window));
        vec![exam::Complaint::new(severity, text, advice).items(&seen.ids, self.limits.sample)]
    }
}
