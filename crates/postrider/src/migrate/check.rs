//! Compares what ran with what the program knows; pure.

use super::MigrationSet;

/// A migration that hasn't run yet.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its schema.
    pub schema: &'static str,
    /// Its version.
    pub version: i32,
    /// Its name, e.g. `0001_work_tables`.
    pub name: &'static str,
    pub(super) sql: &'static str,
    pub(super) checksum: String,
}

impl Pending {
    /// The file's name.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{}.sql", self.name)
    }
}

/// What has run, and what is pending.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Number of migrations that had run already.
    pub applied: usize,
    /// Migrations to run (or, after a run, that were run), in order.
    pub pending: Vec<Pending>,
}

/// Why the schema can't be used or migrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// A migration was edited after it ran.
    #[error(
        "migration {schema}/{file} was edited after it ran on this database (recorded {recorded}, now {now}); \
         restore the file as it was and put the change into a new migration"
    )]
    Edited {
        /// Its schema.
        schema: String,
        /// Its file.
        file: String,
        /// Checksum of what ran.
        recorded: String,
        /// Checksum of what the program has.
        now: String,
    },

    /// A migration ran here that this program lacks, though it knows later ones.
    #[error(
        "migration {schema}/{file} ran on this database and is missing from this program; \
         restore the file, or use the program that brought it"
    )]
    Missing {
        /// Its schema.
        schema: String,
        /// Its file.
        file: String,
    },

    /// A migration is new, but has a lower version than one that ran.
    #[error(
        "migration {schema}/{file} is new but numbered below {newest:04}, which already ran on this database; \
         give it a number above"
    )]
    OutOfOrder {
        /// Its schema.
        schema: String,
        /// Its file.
        file: String,
        /// The highest version that ran.
        newest: i32,
    },

    /// The database was migrated by a newer program.
    #[error(
        "the database's schema {schema} is at version {database:04} and this program knows up to {program:04}; \
         upgrade the program (nothing was changed)"
    )]
    Newer {
        /// The schema.
        schema: String,
        /// The database's version.
        database: i32,
        /// The newest version that the program knows.
        program: i32,
    },

    /// The database was migrated with other migrations under the same numbers.
    #[error(
        "the database's schema {schema} was created by another program or a pre-release of this one: its migration \
         {version:04} is {recorded}, this program's is {known}; use an empty database (nothing was changed)"
    )]
    Unrelated {
        /// The schema.
        schema: String,
        /// The number.
        version: i32,
        /// Name of the migration that ran.
        recorded: String,
        /// Name of the program's migration.
        known: &'static str,
    },

    /// The set itself is malformed.
    #[error("the migrations of schema {schema} are malformed: {problem}")]
    Malformed {
        /// The schema.
        schema: &'static str,
        /// What is wrong.
        problem: String,
    },

    /// A statement failed; everything was rolled back.
    #[error("migration {schema}/{file} failed and nothing was changed: {source}")]
    Failed {
        /// Its schema.
        schema: &'static str,
        /// Its file.
        file: String,
        /// The database's error.
        source: sqlx::Error,
    },

    /// The record could not be read or written.
    #[error("the migration record could not be read or written: {0}")]
    Database(#[from] sqlx::Error),
}

/// A row of `postrider.schema_migration`.
pub(super) struct Recorded {
    pub schema: String,
    pub version: i32,
    pub name: String,
    pub checksum: String,
}

/// Schemas that no set mentions are ignored: another program may share the database.
pub(super) fn compare(sets: &[MigrationSet], recorded: &[Recorded]) -> Result<Plan, MigrateError> {
    let mut plan = Plan::default();
    for set in sets {
        let ran: Vec<&Recorded> = recorded
            .iter()
            .filter(|row| row.schema == set.schema)
            .collect();
        let newest_ran = ran.iter().map(|row| row.version).max().unwrap_or(0);
        let newest_known = set
            .migrations
            .last()
            .map_or(0, |migration| migration.version);
        // First of all: numbers of unrelated migrations can't be compared.
        for row in &ran {
            let known = set.migrations.iter().find(|m| m.version == row.version);
            if let Some(known) = known.filter(|known| known.name != row.name) {
                return Err(MigrateError::Unrelated {
                    schema: row.schema.clone(),
                    version: row.version,
                    recorded: row.name.clone(),
                    known: known.name,
                });
            }
        }
        if newest_ran > newest_known {
            return Err(MigrateError::Newer {
                schema: set.schema.to_owned(),
                database: newest_ran,
                program: newest_known,
            });
        }
        if let Some(row) = ran.iter().find(|row| {
            set.migrations
                .iter()
                .all(|known| known.version != row.version)
        }) {
            return Err(MigrateError::Missing {
                schema: row.schema.clone(),
                file: format!("{}.sql", row.name),
            });
        }
        for migration in set.migrations {
            let checksum = migration.checksum();
            match ran.iter().find(|row| row.version == migration.version) {
                Some(row) if row.checksum != checksum => {
                    return Err(MigrateError::Edited {
                        schema: set.schema.to_owned(),
                        file: format!("{}.sql", migration.name),
                        recorded: short(&row.checksum).to_owned(),
                        now: short(&checksum).to_owned(),
                    });
                }
                Some(_) => plan.applied += 1,
                None if migration.version < newest_ran => {
                    return Err(MigrateError::OutOfOrder {
                        schema: set.schema.to_owned(),
                        file: format!("{}.sql", migration.name),
                        newest: newest_ran,
                    });
                }
                None => plan.pending.push(Pending {
                    schema: set.schema,
                    version: migration.version,
                    name: migration.name,
                    sql: migration.sql,
                    checksum,
                }),
            }
        }
    }
    Ok(plan)
}

fn short(checksum: &str) -> &str {
    checksum.get(..12).unwrap_or(checksum)
}
