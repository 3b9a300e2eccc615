//! How a look is made: read-only, bounded in time, and its failure a complaint like any other.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection, FromRow, PgConnection, PgPool};

use super::{Limits, Severity};

/// What a look brings: nothing to complain about, complaints, or no answer.
pub(super) type Answer = Result<Vec<Complaint>, Unanswered>;

/// A finding before it is known who found it.
#[derive(Debug)]
pub(super) struct Complaint {
    pub severity: Severity,
    pub what: String,
    pub advice: String,
    pub items: Vec<String>,
}

impl Complaint {
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

    pub fn items(mut self, items: impl IntoIterator<Item = impl ToString>, most: usize) -> Self {
        self.items = items
            .into_iter()
            .take(most)
            .map(|i| i.to_string())
            .collect();
        self
    }
}

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("no answer within {0:?}")]
    TooLong(Duration),
}

impl Unanswered {
    /// Not knowing is not the same as being well.
    pub fn complaint(&self) -> Complaint {
        let Self::Database(error) = self else {
            return Complaint::critical(
                format!("the database does not answer: {self}"),
                "check the network, the server and its load, then examine again",
            );
        };
        let refusal = error.as_database_error();
        let code = refusal.and_then(|refusal| refusal.code());
        let said =
            refusal.map_or_else(|| error.to_string(), |refusal| refusal.message().to_owned());
        let what = format!("this could not be examined: {said}");
        match code.as_deref() {
            Some("42501") => Complaint::warning(
                what,
                "examine as the owner of the tables, or grant this role select on them and membership in pg_monitor",
            ),
            Some("57014" | "55P03") => Complaint::warning(
                what,
                "the server is busy, or a lock is held: see the other findings, and examine again at a quieter time",
            ),
            Some("42P01" | "42703" | "42883" | "3F000") => Complaint::warning(
                what,
                "the schema does not fit this program: bring it up to date with `postrider migrate`",
            ),
            // Refused at the door: wrong name or password, no such database, no room, starting or stopping.
            Some(code)
                if !["28", "3D", "53", "57"]
                    .iter()
                    .any(|class| code.starts_with(class)) =>
            {
                Complaint::warning(what, "see what the server's log says about this statement")
            }
            _ => Complaint::critical(
                format!("the database can't be reached: {said}"),
                "check the address, that the server runs, and that it has a connection to spare",
            ),
        }
    }
}

/// The way to the database.
pub(super) struct Exam<'a> {
    pub pool: &'a PgPool,
    pub limits: &'a Limits,
}

impl<'a> Exam<'a> {
    pub fn new(pool: &'a PgPool, limits: &'a Limits) -> Self {
        Self { pool, limits }
    }

    /// Asks one question in a read-only transaction of its own. The text holds constants and numbers alone.
    pub async fn ask<T>(&self, sql: String) -> Result<Vec<T>, Unanswered>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        // The server gives up first; the longer wait here is for a server that does not answer at all.
        let longest = self.limits.patience * 2;
        let too_long = |_| Unanswered::TooLong(longest);
        let mut connection = tokio::time::timeout(longest, self.pool.acquire())
            .await
            .map_err(too_long)??;
        let asked = tokio::time::timeout(longest, self.ask_on(&mut connection, sql.as_str())).await;
        if asked.is_err() {
            // Whatever it was busy with, nobody else should wait for it.
            connection.close_on_drop();
        }
        Ok(asked.map_err(too_long)??)
    }

    /// The only row.
    pub async fn ask_one<T>(&self, sql: String) -> Result<T, Unanswered>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let mut rows = self.ask(sql).await?;
        rows.pop()
            .ok_or(Unanswered::Database(sqlx::Error::RowNotFound))
    }

    async fn ask_on<T>(&self, connection: &mut PgConnection, sql: &str) -> sqlx::Result<Vec<T>>
    where
        T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let mut tx = connection.begin_with("begin read only").await?;
        let settings = format!(
            "set local statement_timeout = {millis}; set local lock_timeout = {millis};
             set local jit = off; set local max_parallel_workers_per_gather = 0;
             set local search_path = pg_catalog",
            millis = self.limits.patience.as_millis()
        );
        sqlx::raw_sql(AssertSqlSafe(settings))
            .execute(&mut *tx)
            .await?;
        // Nameless statements: named ones would trip over each other behind a pooler.
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

/// Seconds in words that people use.
pub(super) fn age(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    match whole.as_secs() {
        0..120 => format!("{} s", whole.as_secs()),
        120..7_200 => format!("{} min", whole.as_secs() / 60),
        7_200..172_800 => format!("{} h", whole.as_secs() / 3_600),
        more => format!("{} days", more / 86_400),
    }
}

/// Bytes in words that people use.
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
    fn ages_and_sizes_read_well() {
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
