//! The doctor: looks at a live database and says what is wrong and what to do about it.
//!
//! The promises:
//! - It changes nothing: every look is a read-only transaction of its own.
//! - It is no burden: each look is bounded in time and in rows, so that a table of a million items is judged by its
//!   indexes' ends and a sample. A figure that may be larger says "at least".
//! - A look that fails (no permission, too slow, a lock) is a finding of its own and stops no other.
//! - No finding holds the text of a query or the content of an item.
//!
//! The invariants I1 to I8 are those of the engine: nothing lost, one owner, crashes recover, bounded attempts, one
//! effect, one clock, terminal is terminal, parents follow children. What only a service knows (I8 most of all) it
//! tells with a [`Check`].

mod exam;
mod finding;
mod fleet;
mod holders;
mod items;
mod limits;
mod pooler;
mod records;
mod schema;
mod server;
mod storage;
mod table_view;

use sqlx::PgPool;

use postrider::lease::{Queue, WorkTable};
use postrider::migrate::Migrator;

use exam::{Complaint, Exam};
pub use finding::{Finding, Report, Severity};
pub use limits::Limits;
use table_view::Words;

/// A look that a service brings along: its own invariant as a query.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// A short name, e.g. `I8/export-jobs`.
    pub name: &'static str,
    /// How bad it is when the query returns anything.
    pub severity: Severity,
    /// Returns one column: what offends, e.g. the ids of jobs. Tables are named with their schema. Bound what it reads;
    /// what it returns is bounded here.
    pub query: &'static str,
    /// What offends, after a number: `jobs whose state does not follow from their inputs`.
    pub what: &'static str,
    /// What to do.
    pub advice: &'static str,
}

/// What is to be examined.
#[derive(Debug, Clone, Default)]
pub struct Doctor {
    tables: Vec<(&'static WorkTable, Option<u32>)>,
    checks: Vec<Check>,
    at_rest: Vec<&'static str>,
    migrator: Option<Migrator>,
    limits: Limits,
}

impl Doctor {
    /// A doctor who looks at the server and at these work tables.
    #[must_use]
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Self {
        Self {
            tables: tables.into_iter().map(|table| (table, None)).collect(),
            ..Self::default()
        }
    }

    /// And at this one, of which it is known how many attempts an item gets at most.
    #[must_use]
    pub fn bounded_table(mut self, table: &'static WorkTable, max_attempts: u32) -> Self {
        self.tables.push((table, Some(max_attempts)));
        self
    }

    /// Also makes these checks.
    #[must_use]
    pub fn checks(mut self, checks: impl IntoIterator<Item = Check>) -> Self {
        self.checks.extend(checks);
        self
    }

    /// Knows that what is parked with these words is not forgotten: the service that parked it looks after it.
    #[must_use]
    pub fn at_rest(mut self, words: impl IntoIterator<Item = &'static str>) -> Self {
        self.at_rest.extend(words);
        self
    }

    /// Also says whether the schema is the one that this migrator would make.
    #[must_use]
    pub fn migrator(mut self, migrator: Migrator) -> Self {
        self.migrator = Some(migrator);
        self
    }

    /// With other ideas of what is long or many.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Makes every look and returns all findings, the good ones too. A database that can't be reached is one.
    pub async fn examine(&self, pool: &PgPool) -> Report {
        let exam = Exam::new(pool, &self.limits);
        let mut report = Report::default();
        if let Err(unanswered) = exam.ask::<(i32,)>("select 1".to_owned()).await {
            report.take("connection", None, "", Err(unanswered));
            return report;
        }
        server::examine(&exam, &mut report).await;
        report.take(
            "server/pooler",
            None,
            "each connection has a session of its own",
            pooler::look(&exam).await,
        );
        holders::examine(&exam, &mut report).await;
        if let Some(migrator) = &self.migrator {
            schema::version(&exam, migrator, &mut report).await;
        }
        let mut present = Vec::new();
        for (table, max_attempts) in &self.tables {
            if let Some(words) = is_there(&exam, table, &mut report).await {
                present.push(table.name);
                schema::examine(&exam, &words, &mut report).await;
                items::examine(&exam, &words, *max_attempts, &self.at_rest, &mut report).await;
                records::of_table(&exam, &words, &mut report).await;
            }
        }
        storage::examine(&exam, &present, &mut report).await;
        records::examine(&exam, &mut report).await;
        fleet::examine(&exam, &mut report).await;
        for check in &self.checks {
            report.take(check.name, None, "as it should be", own(&exam, check).await);
        }
        report
    }
}

/// Examines the server and these tables with the usual limits.
pub async fn examine(pool: &PgPool, tables: &[&'static WorkTable]) -> Report {
    Doctor::new(tables.iter().copied()).examine(pool).await
}

/// A table that is not there is one finding, not a dozen.
async fn is_there<'a>(
    exam: &Exam<'a>,
    table: &'static WorkTable,
    report: &mut Report,
) -> Option<Words<'a>> {
    let missing = || {
        Complaint::critical(
            "the work table does not exist".to_owned(),
            "bring the schema up to date with `postrider migrate`, and check that this is the right database",
        )
    };
    let answer = match Queue::new(table) {
        Err(error) => Ok(vec![Complaint::critical(
            format!("the descriptor can't be used: {error}"),
            "correct the descriptor in the program's source",
        )]),
        Ok(_) => {
            let sql = format!("select to_regclass('{}') is not null", table.name);
            match exam.ask_one(sql).await {
                Ok((true,)) => match Words::learn(exam, table).await {
                    Ok(words) => return Some(words),
                    Err(unanswered) => Err(unanswered),
                },
                Ok((false,)) => Ok(vec![missing()]),
                Err(unanswered) => Err(unanswered),
            }
        }
    };
    report.take("schema/table", Some(table.name), "", answer);
    None
}

async fn own(exam: &Exam<'_>, check: &Check) -> exam::Answer {
    const MOST: usize = 1_000;
    let sql = format!(
        "select offender.id::text from ({}) as offender(id) limit {MOST}",
        check.query
    );
    let rows: Vec<(Option<String>,)> = exam.ask(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let least = if rows.len() == MOST { "at least " } else { "" };
    let what = format!("{least}{} {}", rows.len(), check.what);
    let items = rows.into_iter().filter_map(|(id,)| id);
    Ok(vec![
        Complaint::new(check.severity, what, check.advice).items(items, exam.limits.sample),
    ])
}
