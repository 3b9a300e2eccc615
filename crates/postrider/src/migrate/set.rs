//! A crate's migrations, embedded in the program.

use sha2::{Digest, Sha256};

use super::MigrateError;

/// One migration file.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Version: the number at the start of the file's name.
    pub version: i32,
    /// Name: the file's name without its extension, e.g. `0001_work_tables`.
    pub name: &'static str,
    /// The file's text; any number of statements.
    pub sql: &'static str,
}

impl Migration {
    /// SHA-256 of the text, ignoring line endings (a checkout on another system is no edit).
    #[must_use]
    pub fn checksum(&self) -> String {
        let mut hash = Sha256::new();
        for line in self.sql.lines() {
            hash.update(line.as_bytes());
            hash.update(b"\n");
        }
        hex::encode(hash.finalize())
    }
}

/// All migrations of one schema; create it with [`migration_set!`](crate::migration_set).
#[derive(Debug, Clone, Copy)]
pub struct MigrationSet {
    /// The schema that these files own.
    pub schema: &'static str,
    /// In ascending order of version.
    pub migrations: &'static [Migration],
}

impl MigrationSet {
    pub(super) fn validate(&self) -> Result<(), MigrateError> {
        let malformed = |problem: String| MigrateError::Malformed {
            schema: self.schema,
            problem,
        };
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        if self.schema.is_empty() || !self.schema.chars().all(plain) {
            return Err(malformed(
                "a schema's name consists of lower-case letters and underscores".to_owned(),
            ));
        }
        let mut before = 0;
        for migration in self.migrations {
            if migration.version <= before {
                return Err(malformed(format!(
                    "{}.sql must come with a number above {before:04}",
                    migration.name
                )));
            }
            before = migration.version;
        }
        Ok(())
    }
}

/// The number at the start of a migration's name (`0012_more` → 12); 0, which is invalid, if there is none.
#[must_use]
pub const fn version_of(name: &str) -> i32 {
    let bytes = name.as_bytes();
    let (mut index, mut version) = (0, 0);
    while index < bytes.len() && bytes[index].is_ascii_digit() && index < 6 {
        version = version * 10 + (bytes[index] - b'0') as i32;
        index += 1;
    }
    if index < bytes.len() && bytes[index] == b'_' {
        version
    } else {
        0
    }
}

/// Embeds the named files of the calling crate's `migrations/` folder, or of another folder if one is given.
///
/// ```compile_fail
/// // Reads migrations/0001_jobs.sql and migrations/0002_reuse.sql of your crate.
/// postrider::migration_set!("exports", ["0001_jobs", "0002_reuse"]);
/// ```
#[macro_export]
macro_rules! migration_set {
    ($schema:literal, [$($name:literal),* $(,)?]) => {
        $crate::migration_set!($schema, "migrations", [$($name),*])
    };
    ($schema:literal, $folder:literal, [$($name:literal),* $(,)?]) => {
        $crate::migrate::MigrationSet {
            schema: $schema,
            migrations: const { &[$($crate::migrate::Migration {
                version: $crate::migrate::version_of($name),
                name: $name,
                sql: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/", $folder, "/", $name, ".sql")),
            }),*] },
        }
    };
}
