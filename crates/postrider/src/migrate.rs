//! Migrations: embedded in the program, versioned, all-or-nothing.
//!
//! Each crate brings a [`MigrationSet`] for its own schema. A [`Migrator`] runs several sets in one transaction under
//! one advisory lock, so that starting ten programs at once is safe and a failure leaves the database as it was. The
//! lock belongs to the transaction, so a pooler in transaction mode works. Because everything is one transaction, a
//! migration can't use `CREATE INDEX CONCURRENTLY`.
//!
//! Applied migrations are recorded in `postrider.schema_migration`. Before anything runs, the record is compared with
//! what the program knows: an edited or missing migration and a schema newer than the program are errors.
//!
//! ```no_run
//! use postrider::migrate::Migrator;
//!
//! # async fn example(pool: &sqlx::PgPool) -> postrider::Result<()> {
//! let mut connection = pool.acquire().await?;
//! Migrator::new([postrider::migrations()]).run(&mut connection).await?;
//! # Ok(())
//! # }
//! ```

mod check;
mod set;

use std::time::Duration;

use sqlx::{Connection, PgConnection};

pub use check::{MigrateError, Pending, Plan};
use check::{Recorded, compare};
pub use set::{Migration, MigrationSet, version_of};

/// Any number will do as long as every version of the program uses the same one ("postride" in ASCII).
const LOCK: i64 = 0x706f_7374_7269_6465;

const RECORD_EXISTS: &str = "select to_regclass('postrider.schema_migration') is not null";

const RECORD: &str = "select schema, version, name, checksum from postrider.schema_migration order by schema, version";

const CREATE_RECORD: &str = "
create schema if not exists postrider;
create table if not exists postrider.schema_migration (
    schema          text        not null,
    version         integer     not null check (version > 0),
    name            text        not null,
    checksum        text        not null check (checksum ~ '^[0-9a-f]{64}$'),
    applied_at      timestamptz not null default clock_timestamp(),
    took            interval    not null,
    program_version text        not null,
    primary key (schema, version)
)";

const INSERT_RECORD: &str = "
insert into postrider.schema_migration (schema, version, name, checksum, took, program_version)
values ($1, $2, $3, $4, make_interval(secs => $5), $6)";

/// Runs migration sets in the order given.
#[derive(Debug, Clone)]
pub struct Migrator {
    sets: Vec<MigrationSet>,
    program_version: String,
}

impl Migrator {
    /// Creates a migrator for these sets; put a set after those whose objects it uses.
    #[must_use]
    pub fn new(sets: impl IntoIterator<Item = MigrationSet>) -> Self {
        Self {
            sets: sets.into_iter().collect(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Sets the program version to record with each migration, instead of the library's own.
    #[must_use]
    pub fn program_version(mut self, version: impl Into<String>) -> Self {
        self.program_version = version.into();
        self
    }

    /// Returns what a run would do; changes nothing.
    pub async fn plan(&self, connection: &mut PgConnection) -> Result<Plan, MigrateError> {
        self.validate()?;
        // A transaction keeps a pooler from spreading these statements over several servers.
        let mut tx = connection.begin().await?;
        let recorded = read_record(&mut tx).await?;
        tx.rollback().await?;
        compare(&self.sets, &recorded)
    }

    /// Brings the database up to date; returns what was done. Safe to call from many programs at once.
    pub async fn run(&self, connection: &mut PgConnection) -> Result<Plan, MigrateError> {
        let plan = self.plan(connection).await?;
        if plan.pending.is_empty() {
            // The usual start: no lock, no write, no permission to create anything needed.
            return Ok(plan);
        }
        let mut tx = connection.begin().await?;
        sqlx::raw_sql("set local statement_timeout = 0; set local lock_timeout = 0")
            .execute(&mut *tx)
            .await?;
        sqlx::query("select pg_advisory_xact_lock($1)")
            .persistent(false)
            .bind(LOCK)
            .execute(&mut *tx)
            .await?;
        sqlx::raw_sql(CREATE_RECORD).execute(&mut *tx).await?;
        // Another process may have done it while this one waited.
        let plan = compare(&self.sets, &read_record(&mut tx).await?)?;
        for pending in &plan.pending {
            self.apply(&mut tx, pending).await?;
        }
        tx.commit().await?;
        Ok(plan)
    }

    async fn apply(&self, tx: &mut PgConnection, pending: &Pending) -> Result<(), MigrateError> {
        let failed = |source| MigrateError::Failed {
            schema: pending.schema,
            file: pending.file(),
            source,
        };
        let started = std::time::Instant::now();
        let schema = pending.schema;
        // The schema's name is a compile-time constant of the form [a-z_]+ (see `validate`).
        let prepare = format!(
            "create schema if not exists {schema}; set local search_path = {schema}, pg_catalog"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(prepare))
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        sqlx::raw_sql(pending.sql)
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        let took = started.elapsed();
        self.record(tx, pending, took).await?;
        tracing::debug!(schema, migration = pending.name, ?took, "applied migration");
        Ok(())
    }

    async fn record(
        &self,
        tx: &mut PgConnection,
        pending: &Pending,
        took: Duration,
    ) -> Result<(), MigrateError> {
        sqlx::query(INSERT_RECORD)
            .persistent(false)
            .bind(pending.schema)
            .bind(pending.version)
            .bind(pending.name)
            .bind(&pending.checksum)
            .bind(took.as_secs_f64())
            .bind(&self.program_version)
            .execute(tx)
            .await?;
        Ok(())
    }

    /// A malformed set is a programming error: report it before the database is touched.
    fn validate(&self) -> Result<(), MigrateError> {
        for (index, set) in self.sets.iter().enumerate() {
            set.validate()?;
            if self.sets[..index]
                .iter()
                .any(|other| other.schema == set.schema)
            {
                return Err(MigrateError::Malformed {
                    schema: set.schema,
                    problem: "two sets claim this schema".to_owned(),
                });
            }
        }
        Ok(())
    }
}

async fn read_record(tx: &mut PgConnection) -> Result<Vec<Recorded>, MigrateError> {
    let exists: bool = sqlx::query_scalar(RECORD_EXISTS)
        .persistent(false)
        .fetch_one(&mut *tx)
        .await?;
    if !exists {
        return Ok(Vec::new());
    }
    let rows: Vec<(String, i32, String, String)> = sqlx::query_as(RECORD)
        .persistent(false)
        .fetch_all(tx)
        .await?;
    Ok(rows
        .into_iter()
        .map(|(schema, version, name, checksum)| Recorded {
            schema,
            version,
            name,
            checksum,
        })
        .collect())
}
