//! What can go wrong, each with a sentence that says what to do.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Why the private server could not be started, kept or stopped.
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
    /// The directory given as the place of the binaries does not hold them.
    #[error(
        "{dir} does not hold working PostgreSQL server programs (postgres, initdb): correct the directory, or leave it out to have them found"
    )]
    NotInBinDir {
        /// The directory that was given.
        dir: PathBuf,
    },
    /// Only versions older than the oldest that the program is tested with.
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
    /// The cluster was made by a major version whose binaries are not here.
    #[error(
        "the database in {cluster} was made by PostgreSQL {made_by}, but only {found} is installed: install PostgreSQL {made_by} beside it, or move the data over with pg_upgrade (or pg_dump and a new data directory)"
    )]
    VersionMismatch {
        /// The cluster's directory.
        cluster: PathBuf,
        /// Its major version.
        made_by: u32,
        /// The versions that were found.
        found: String,
    },
    /// Something that is no cluster sits where the cluster belongs.
    #[error(
        "{cluster} exists but is no PostgreSQL cluster (it has no readable PG_VERSION): move it away, or restore it from a backup"
    )]
    NotACluster {
        /// The directory.
        cluster: PathBuf,
    },
    /// Another program uses the data directory.
    #[error(
        "the data directory {data_dir} is in use by {}: stop that program first, or give this one another data directory",
        holder.map_or_else(|| "another program".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// The data directory.
        data_dir: PathBuf,
        /// The process that holds it, if it said so.
        holder: Option<u32>,
    },
    /// The cluster belongs to somebody else.
    #[error(
        "the database in {cluster} belongs to user {owner}, and {why}: run the program as that user, or give the directory away with `chown -R`"
    )]
    Owner {
        /// The cluster's directory.
        cluster: PathBuf,
        /// Who owns it.
        owner: String,
        /// Why that does not work.
        why: &'static str,
    },
    /// The unprivileged server user could not reach its own data.
    #[error(
        "PostgreSQL does not run as root, and user {user}, as whom it would run, may not pass through {dir}: run `chmod o+x {dir}`, or choose another data directory, such as /var/lib/postrider"
    )]
    Untraversable {
        /// The directory that is closed.
        dir: PathBuf,
        /// The server's user.
        user: String,
    },
    /// A directory that must be private is not safely so.
    #[error(
        "{dir} must be a directory of user {user} alone, but {why}: move it away, give it to that user with `chown -R`, or choose another data directory"
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
    /// Making the new cluster failed.
    #[error("initdb could not make a new database cluster ({status}); it said:\n{output}")]
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
    /// The server runs but does not answer.
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
    /// The program's database could not be made.
    #[error("could not make the program's database in the private cluster: {source}")]
    Database {
        /// What the server said.
        source: sqlx::Error,
    },
    /// A process of an earlier run holds the cluster and does not end.
    #[error(
        "process {pid}, a PostgreSQL process that an earlier run left in {cluster}, does not end: end it by hand and start again"
    )]
    Leftover {
        /// The process.
        pid: i32,
        /// The cluster it holds.
        cluster: PathBuf,
    },
    /// The operating system gave no thread.
    #[error("could not start the thread that keeps PostgreSQL: {source}")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
    /// The thread that keeps the server has ended without a word.
    #[error("the thread that keeps PostgreSQL has ended unexpectedly; start the program again")]
    KeeperGone,
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
