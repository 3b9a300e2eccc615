//! Doctor: diagnoses a live database and says what to do about each problem.
//!
//! Promises:
//! - It changes nothing: every check is a read-only transaction of its own.
//! - It is cheap: each check is bounded in time and rows. On a table of a million items it reads both ends of the
//!   indexes and a sample, and says "at least" where a number may be larger.
//! - A check that fails (missing permission, timeout, lock) is a finding of its own and doesn't stop the others.
//! - No finding contains query text or the content of an item.
//!
//! The checks follow the library's invariants: I1 nothing is lost, I2 one owner, I3 crashes recover, I4 attempts are
//! bounded, I5 one effect, I6 one clock, I7 terminal states are final, I8 parents follow children. A service adds its
//! own (most of all for I8) as a [`Check`].

mod finding;
mod fleet;
mod holders;
mod items;
mod limits;
mod pooler;
mod probe;
mod records;
mod schema;
mod server;
mod storage;
mod table_view;

use sqlx::PgPool;

use postrider::lease::{Queue, WorkTable};
use postrider::migrate::Migrator;

pub use finding::{Finding, Report, Severity};
pub use limits::Limits;
use probe::{Issue, Probe};
use table_view::TableView;

/// An invariant of a service, as a query.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Short name, e.g. `I8/export-jobs`.
    pub name: &'static str,
    /// Severity if the query returns any row.
    pub severity: Severity,
    /// Returns one column: the offending objects, e.g. job ids. Qualify tables with their schema. Bound what it reads;
    /// the number of rows is bounded here.
    pub query: &'static str,
    /// Description after a number: `jobs whose state does not follow from their inputs`.
    pub what: &'static str,
    /// What the operator should do.
    pub advice: &'static str,
}

/// Examines a database.
#[derive(Debug, Clone, Default)]
pub struct Doctor {
    tables: Vec<(&'static WorkTable, Option<u32>)>,
    checks: Vec<Check>,
    parked_reasons: Vec<&'static str>,
    migrator: Option<Migrator>,
    limits: Limits,
}

impl Doctor {
    /// Examines the server and these work tables.
    #[must_use]
    pub fn new(tables: impl IntoIterator<Item = &'static WorkTable>) -> Self {
        Self {
            tables: tables.into_iter().map(|table| (table, None)).collect(),
            ..Self::default()
        }
    }

    /// Also examines this table, whose items get at most this many attempts.
    #[must_use]
    pub fn bounded_table(mut self, table: &'static WorkTable, max_attempts: u32) -> Self {
        self.tables.push((table, Some(max_attempts)));
        self
    }

    /// Adds checks.
    #[must_use]
    pub fn checks(mut self, checks: impl IntoIterator<Item = Check>) -> Self {
        self.checks.extend(checks);
        self
    }

    /// Doesn't report items that are parked with these reasons: a service parked them and unparks them itself.
    #[must_use]
    pub fn parked_reasons(mut self, reasons: impl IntoIterator<Item = &'static str>) -> Self {
        self.parked_reasons.extend(reasons);
        self
    }

    /// Also checks that the schema is the one that this migrator creates.
    #[must_use]
    pub fn migrator(mut self, migrator: Migrator) -> Self {
        self.migrator = Some(migrator);
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Runs every check and returns all findings, including the good ones. An unreachable database is a finding.
    pub async fn examine(&self, pool: &PgPool) -> Report {
        let probe = Probe::new(pool, &self.limits);
        let mut report = Report::default();
        if let Err(error) = probe.query::<(i32,)>("select 1".to_owned()).await {
            report.add("connection", None, "", Err(error));
            return report;
        }
        server::examine(&probe, &mut report).await;
        report.add(
            "server/pooler",
            None,
            "each connection has its own session",
            pooler::check(&probe).await,
        );
        holders::examine(&probe, &mut report).await;
        if let Some(migrator) = &self.migrator {
            schema::version(&probe, migrator, &mut report).await;
        }
        let mut present = Vec::new();
        for (table, max_attempts) in &self.tables {
            if let Some(view) = find_table(&probe, table, &mut report).await {
                present.push(table.name);
                schema::examine(&probe, &view, &mut report).await;
                items::examine(
                    &probe,
                    &view,
                    *max_attempts,
                    &self.parked_reasons,
                    &mut report,
                )
                .await;
                records::examine_table(&probe, &view, &mut report).await;
            }
        }
        storage::examine(&probe, &present, &mut report).await;
        records::examine(&probe, &mut report).await;
        fleet::examine(&probe, &mut report).await;
        for check in &self.checks {
            report.add(check.name, None, "holds", run_check(&probe, check).await);
        }
        report
    }
}

/// Examines the server and these tables with the default limits.
pub async fn examine(pool: &PgPool, tables: &[&'static WorkTable]) -> Report {
    Doctor::new(tables.iter().copied()).examine(pool).await
}

/// A missing table is one finding, not a dozen.
async fn find_table<'a>(
    probe: &Probe<'a>,
    table: &'static WorkTable,
    report: &mut Report,
) -> Option<TableView<'a>> {
    let missing = || {
        Issue::critical(
            "the work table does not exist".to_owned(),
            "run `postrider migrate`, and check that this is the right database",
        )
    };
    let answer = match Queue::new(table) {
        Err(error) => Ok(vec![Issue::critical(
            format!("the table's descriptor is invalid: {error}"),
            "fix the descriptor in the program's source",
        )]),
        Ok(_) => {
            let sql = format!("select to_regclass('{}') is not null", table.name);
            match probe.query_one(sql).await {
                Ok((true,)) => match TableView::load(probe, table).await {
                    Ok(view) => return Some(view),
                    Err(error) => Err(error),
                },
                Ok((false,)) => Ok(vec![missing()]),
                Err(error) => Err(error),
            }
        }
    };
    report.add("schema/table", Some(table.name), "", answer);
    None
}

async fn run_check(probe: &Probe<'_>, check: &Check) -> probe::CheckResult {
    const MAX_ROWS: usize = 1_000;
    let sql = format!(
        "select offender.id::text from ({}) as offender(id) limit {MAX_ROWS}",
        check.query
    );
    let rows: Vec<(Option<String>,)> = probe.query(sql).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let least = if rows.len() == MAX_ROWS {
        "at least "
    } else {
        ""
    };
    let what = format!("{least}{} {}", rows.len(), check.what);
    let items = rows.into_iter().filter_map(|(id,)| id);
    Ok(vec![
        Issue::new(check.severity, what, check.advice).items(items, probe.limits.sample),
    ])
}
