//! Runs checks: read-only, bounded in time; a failed check is an issue like any other.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, FromRow, PgConnection, PgPool};

use super::{Limits, Severity};

/// Issues that a check found (none: all is well), or why it failed.
pub(super) type CheckResult = Result<Vec<Issue>, CheckError>;

/// A finding without the name of its check.
#[derive(Debug)]
pub(super) struct Issue {
    pub severity: Severity,
    pub what: String,
    pub advice: String,
    pub items: Vec<String>,
}

impl Issue {
    pub fn new(severity: Severity, what: String, advice: impl Into<String>) -> Self {
        Self {
            severity,
            what,
            advice: advice.into(),
            items: Vec::new(),
        }
    }

    pub fn info(what: String, advice: impl Into<String>) -> Self {
        Self::new(Severity::Info, what, advice)
    }

    pub fn warning(what: String, advice: impl Into<String>) -> Self {
        Self::new(Severity::Warning, what, advice)
    }

    pub fn critical(what: String, advice: impl Into<String>) -> Self {
        Self::new(Severity::Critical, what, advice)
    }

    pub fn items(mut self, items: impl IntoIterator<Item = impl ToString>, max: usize) -> Self {
        self.items = items.into_iter().take(max).map(|i| i.to_string()).collect();
        self
    }
}

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

impl CheckError {
    /// A check that failed doesn't count as passed.
    pub fn issue(&self) -> Issue {
        let Self::Database(error) = self else {
            return Issue::critical(
                format!("the database does not respond: {self}"),
                "check the network, the server and its load, then run the doctor again",
            );
        };
        let database = error.as_database_error();
        let code = database.and_then(|error| error.code());
        let message =
            database.map_or_else(|| error.to_string(), |error| error.message().to_owned());
        let what = format!("the check failed: {message}");
        match code.as_deref() {
            Some("42501") => Issue::warning(
                what,
                "run the doctor as the owner of the tables, or grant this role select on them and membership in pg_monitor",
            ),
            Some("57014" | "55P03") => Issue::warning(
                what,
                "the server is busy or a lock is held: see the other findings, and run the doctor again later",
            ),
            Some("42P01" | "42703" | "42883" | "3F000") => Issue::warning(
                what,
                "the schema does not match this program: run `postrider migrate`",
            ),
            // The connection was refused: wrong name or password, no such database, no free connection, starting or stopping.
            Some(code)
                if !["28", "3D", "53", "57"]
                    .iter()
                    .any(|class| code.starts_with(class)) =>
            {
                Issue::warning(what, "see the server's log for this statement")
            }
            _ => Issue::critical(
                format!("the database is unreachable: {message}"),
                "check the address, that the server is running, and that it has a free connection",
            ),
        }
    }
}

/// Runs bounded read-only queries.
pub(super) struct Probe<'a> {
    pub pool: &'a PgPool,
    pub limits: &'a Limits,
}

impl<'a> Probe<'a> {
    pub fn new(pool: &'a PgPool, limits: &'a Limits) -> Self {
        Self { pool, limits }
    }

    /// Runs one query in a read-only transaction of its own. The text contains only constants and numbers.
    pub async fn query<T>(&self, sql: String) -> Result<Vec<T>, CheckError>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        // The server times out first; this longer timeout is for a server that doesn't respond at all.
        let deadline = self.limits.timeout * 2;
        let timed_out = |_| CheckError::Timeout(deadline);
        let mut connection = tokio::time::timeout(deadline, self.pool.acquire())
            .await
            .map_err(timed_out)??;
        let result =
            tokio::time::timeout(deadline, self.query_on(&mut connection, sql.as_str())).await;
        if result.is_err() {
            // Don't return a busy connection to the pool.
            connection.close_on_drop();
        }
        Ok(result.map_err(timed_out)??)
    }

    /// The only row of the result.
    pub async fn query_one<T>(&self, sql: String) -> Result<T, CheckError>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let mut rows = self.query(sql).await?;
        rows.pop()
            .ok_or(CheckError::Database(sqlx::Error::RowNotFound))
    }

    async fn query_on<T>(&self, connection: &mut PgConnection, sql: &str) -> sqlx::Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let mut tx = connection.begin_with("begin read only").await?;
        let settings = format!(
            "set local statement_timeout = {millis}; set local lock_timeout = {millis};
             set local jit = off; set local max_parallel_workers_per_gather = 0;
             set local search_path = pg_catalog",
            millis = self.limits.timeout.as_millis()
        );
        sqlx::raw_sql(AssertSqlSafe(settings))
            .execute(&mut *tx)
            .await?;
        // Unnamed statements: named ones would collide behind a pooler.
        let rows = sqlx::query_as(AssertSqlSafe(sql.to_owned()))
            .persistent(false)
            .fetch_all(&mut *tx)
            .await?;
        tx.rollback().await?;
        Ok(rows)
    }
}

/// A duration as an SQL interval.
pub(super) fn interval(duration: Duration) -> String {
    format!("make_interval(secs => {})", duration.as_secs_f64())
}

/// Formats seconds for people.
pub(super) fn age(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    match whole.as_secs() {
        0..120 => format!("{} s", whole.as_secs()),
        120..7_200 => format!("{} min", whole.as_secs() / 60),
        7_200..172_800 => format!("{} h", whole.as_secs() / 3_600),
        more => format!("{} days", more / 86_400),
    }
}

/// Formats bytes for people.
pub(super) fn size(bytes: i64) -> String {
    match bytes {
        ..1_048_576 => format!("{} kB", bytes / 1024),
        1_048_576..1_073_741_824 => format!("{} MB", bytes / 1_048_576),
        _ => format!("{} GB", bytes / 1_073_741_824),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_sizes_are_formatted_for_people() {
        assert_eq!(age(-3.0), "0 s");
        assert_eq!(age(119.0), "119 s");
        assert_eq!(age(3_600.0), "60 min");
        assert_eq!(age(86_400.0), "24 h");
        assert_eq!(age(1e9), "11574 days");
        assert_eq!(age(f64::MAX), age(u64::MAX as f64));
        assert_eq!(size(2_048), "2 kB");
        assert_eq!(size(5 << 30), "5 GB");
    }
}
