//! Errors; each says what to do.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why the private server could not be started, supervised or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No PostgreSQL on this machine.
    #[error(
        "no PostgreSQL server programs (postgres, initdb) found on PATH or in the usual directories: install them with `{install}`, or set database.url to use another server"
    )]
    NotInstalled {
        /// The command for this machine.
        install: &'static str,
    },
    /// The configured directory doesn't contain the binaries.
    #[error(
        "{dir} does not contain working PostgreSQL server programs (postgres, initdb): correct the directory, or omit it to search for them"
    )]
    NotInBinDir {
        /// The directory that was given.
        dir: PathBuf,
    },
    /// Only unsupported old versions are installed.
    #[error(
        "PostgreSQL {found} is too old, {oldest} or newer is needed: install one with `{install}`"
    )]
    TooOld {
        /// What was found.
        found: String,
        /// The oldest supported major version.
        oldest: u32,
        /// The command for this machine.
        install: &'static str,
    },
    /// The cluster was created by a major version that isn't installed.
    #[error(
        "the database in {cluster} was created by PostgreSQL {made_by}, but only {found} is installed: install PostgreSQL {made_by} in addition, or move the data over with pg_upgrade (or pg_dump and a new data directory)"
    )]
    VersionMismatch {
        /// The cluster's directory.
        cluster: PathBuf,
        /// Its major version.
        made_by: u32,
        /// The versions that were found.
        found: String,
    },
    /// The cluster's directory contains something else.
    #[error(
        "{cluster} exists but is not a PostgreSQL cluster (no readable PG_VERSION): move it away, or restore it from a backup"
    )]
    NotACluster {
        /// The directory.
        cluster: PathBuf,
    },
    /// Another process uses the data directory.
    #[error(
        "the data directory {data_dir} is in use by {}: stop that program first, or give this one another data directory",
        holder.map_or_else(|| "another program".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The data directory.
        data_dir: PathBuf,
        /// The process that holds it, if known.
        holder: Option<u32>,
    },
    /// The cluster belongs to another user.
    #[error(
        "the database in {cluster} belongs to user {owner}, and {why}: run the program as that user, or change the directory's owner with `chown -R`"
    )]
    Owner {
        /// The cluster's directory.
        cluster: PathBuf,
        /// Its owner.
        owner: String,
        /// Why that does not work.
        why: &'static str,
    },
    /// The server's user can't reach its data.
    #[error(
        "PostgreSQL does not run as root, and its user {user} may not traverse {dir}: run `chmod o+x {dir}`, or choose another data directory, such as /var/lib/postrider"
    )]
    Untraversable {
        /// The directory in the way.
        dir: PathBuf,
        /// The server's user.
        user: String,
    },
    /// A directory that must be private isn't.
    #[error(
        "{dir} must be a private directory of user {user}, but {why}: move it away, change its owner with `chown -R`, or choose another data directory"
    )]
    NotPrivate {
        /// The directory.
        dir: PathBuf,
        /// The server's user.
        user: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file operation failed.
    #[error("could not {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// initdb failed.
    #[error("initdb could not create a database cluster ({status}); its output:\n{output}")]
    Initdb {
        /// How it ended.
        status: ExitStatus,
        /// The end of its output.
        output: String,
    },
    /// The server ended while it was starting.
    #[error("PostgreSQL ended while starting ({status}); the end of {log}:\n{tail}")]
    Exited {
        /// How it ended.
        status: ExitStatus,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// The server is running but doesn't accept connections.
    #[error(
        "PostgreSQL did not accept a connection within {waited:?} (last: {last}); the end of {log}:\n{tail}"
    )]
    NotReady {
        /// How long it was given.
        waited: Duration,
        /// The last connection error.
        last: String,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// The program's database could not be created.
    #[error("could not create the program's database in the private cluster: {source}")]
    Database {
        /// What the server said.
        source: sqlx::Error,
    },
    /// A process of an earlier run doesn't end.
    #[error(
        "PostgreSQL process {pid}, left by an earlier run in {cluster}, does not end: kill it and start again"
    )]
    Leftover {
        /// The process.
        pid: i32,
        /// The cluster it holds.
        cluster: PathBuf,
    },
    /// The supervisor's thread could not be started.
    #[error("could not start the thread that supervises PostgreSQL: {source}")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
    /// The supervisor's thread has ended unexpectedly.
    #[error("the thread that supervises PostgreSQL has ended unexpectedly; restart the program")]
    SupervisorGone,
}

impl Error {
    /// Names the action and the path of an I/O error, for use in `map_err`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
