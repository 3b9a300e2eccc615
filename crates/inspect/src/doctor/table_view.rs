//! One work table in the doctor's words: every column under its canonical name, read in bounded windows.

use super::exam::{Exam, Unanswered};
use super::{Limits, exam};
use postrider::lease::{Finish, WorkTable};

/// A work table and the pieces of SQL to look at it. Only the descriptor's constants and numbers go into them.
pub(super) struct Words<'a> {
    pub table: &'static WorkTable,
    pub limits: &'a Limits,
    /// The claim index begins with the kind, hence windows are read kind by kind.
    pub by_kind: bool,
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
    fn items(&self, reach: u32) -> String {
        let least = if self.looked >= i64::from(reach) {
            "at least "
        } else {
            ""
        };
        let noun = if self.count == 1 { "item" } else { "items" };
        format!("{least}{} {noun}", self.count)
    }
}

impl<'a> Words<'a> {
    /// Looks which claim index the table has.
    pub async fn learn(exam: &Exam<'a>, table: &'static WorkTable) -> Result<Self, Unanswered> {
        let by_kind = match table.kind {
            None => false,
            Some(kind) => {
                let sql = format!(
                    "select count(*) > 0 from pg_index i where i.indrelid = '{}'::regclass
and {} and i.indisvalid",
                    table.name,
                    claims(table, Some(kind)),
                );
                exam.ask_one::<(bool,)>(sql).await?.0
            }
        };
        Ok(Self {
            table,
            limits: exam.limits,
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
            // What somebody ended on purpose has no cause.
            given_up = c
                .cause
                .map_or("true".to_owned(), |cause| format!("t.{cause} is not null")),
        )
    }

    /// Unfinished items, first due first: by the claim index. Leased ones are near its beginning.
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

    /// So many rows seen, and there may be more.
    fn reach(&self) -> u32 {
        if self.by_kind {
            (self.limits.window / 10).max(1)
        } else {
            self.limits.window
        }
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
            "(select * from {window} where w.state = '{}' and w.given_up) d",
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
        let text = what(seen.items(self.reach()));
        vec![exam::Complaint::new(severity, text, advice).items(&seen.ids, self.limits.sample)]
    }
}

/// What a claim index `i` looks like: (due, id), or the kind before them, over exactly the unfinished rows.
pub(super) fn claims(table: &WorkTable, kind: Option<&str>) -> String {
    let c = &table.columns;
    let columns: Vec<&str> = kind.into_iter().chain([c.due, c.id]).collect();
    let columns: Vec<String> = (1..)
        .zip(columns)
        .map(|(place, name)| format!("pg_get_indexdef(i.indexrelid, {place}, false) = '{name}'"))
        .collect();
    format!(
        "{} and pg_get_expr(i.indpred, i.indrelid) = '({} IS NULL)'",
        columns.join(" and "),
        c.finished
    )
}
