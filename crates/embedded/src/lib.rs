//! A private PostgreSQL server that lives and dies with the program.
//!
//! Promise: [`Postgres::start`] on a data directory returns a durable database, whatever happened
//! there before (first start, clean stop, interrupted first start, kill -9 of the program, the
//! server or both), or an error that says what to do. While the program runs, a server that dies is
//! restarted; when the program ends, however it ends, the server ends too.
//!
//! Reading order: `layout` (directories and lock), `binaries` (which PostgreSQL), `account` (the
//! server's user), `cluster` (initdb), `leftovers` (cleanup after a crash), `server` (the server
//! process), `supervisor` (starts and restarts it).

mod account;
mod binaries;
mod cluster;
mod error;
mod layout;
mod leftovers;
mod log;
mod presence;
mod server;
mod settings;
mod supervisor;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgConnectOptions;
use tokio::sync::{oneshot, watch};

pub use binaries::{Installation, installations};
pub use error::Error;
pub use presence::{Presence, presence};

/// Name of the program's database in the private cluster.
pub const DATABASE: &str = "postrider";
/// The role that owns the private cluster.
pub const ROLE: &str = "postrider";

/// What to start and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program's data directory; the cluster lives in its `postgres` folder.
    pub data_dir: PathBuf,
    /// Directory of `postgres` and `initdb`; searched for if `None`.
    pub bin_dir: Option<PathBuf>,
    /// Server settings that override the built-in ones, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// Default options: binaries are searched for, settings are built-in.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            bin_dir: None,
            settings: Vec::new(),
        }
    }

    /// Overrides one server setting.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// State of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Accepting connections; `pid` is the server's main process.
    Running {
        /// The main process.
        pid: u32,
    },
    /// It died and is being restarted; connections fail meanwhile.
    Restarting,
    /// It was stopped.
    Stopped,
}

/// A running private server. Dropping it stops the server; [`Postgres::stop`] also waits.
#[derive(Debug)]
pub struct Postgres {
    socket_dir: PathBuf,
    version: String,
    state: watch::Receiver<State>,
    restarts: Arc<AtomicU64>,
    stop: oneshot::Sender<()>,
    done: oneshot::Receiver<Result<(), Error>>,
}

impl Postgres {
    /// Starts the server of this data directory and returns when it accepts connections.
    ///
    /// The supervisor runs on a thread of its own with its own runtime: the kernel ends the server
    /// with that thread, so it must not depend on the caller's runtime.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let (stop, stop_requested) = oneshot::channel();
        let (ready, started) = oneshot::channel();
        let (done_sender, done) = oneshot::channel();
        let (state_sender, state) = watch::channel(State::Restarting);
        let restarts = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&restarts);
        std::thread::Builder::new()
            .name("postgres-supervisor".to_owned())
            .spawn(move || {
                supervisor::run(
                    options,
                    ready,
                    stop_requested,
                    done_sender,
                    state_sender,
                    counter,
                );
            })
            .map_err(|source| Error::Thread { source })?;
        let started = started.await.map_err(|_| Error::SupervisorGone)??;
        Ok(Self {
            socket_dir: started.socket_dir,
            version: started.version,
            state,
            restarts,
            stop,
            done,
        })
    }

    /// Connection options: Unix socket, database [`DATABASE`], role [`ROLE`].
    pub fn connect_options(&self) -> PgConnectOptions {
        server::connect_options(&self.socket_dir).database(DATABASE)
    }

    /// Connection URL, for people and `psql`.
    pub fn url(&self) -> String {
        format!(
            "postgresql:///{DATABASE}?host={}&user={ROLE}",
            layout::percent_encode(&self.socket_dir)
        )
    }

    /// The server's main process, unless it is down at this moment.
    pub fn pid(&self) -> Option<u32> {
        match *self.state.borrow() {
            State::Running { pid } => Some(pid),
            State::Restarting | State::Stopped => None,
        }
    }

    /// The server's version, such as `15.12`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Number of restarts after the server died.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// The server's state, to read or to wait on.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Stops the server cleanly (open transactions are rolled back) and waits until it has ended.
    pub async fn stop(self) -> Result<(), Error> {
        // A closed channel means that the supervisor has ended; `done` has the result.
        let _ = self.stop.send(());
        self.done.await.map_err(|_| Error::SupervisorGone)?
    }
}

/// Deletes the private cluster of a data directory that no program uses, and stops a server that a
/// crashed program left. For throw-away clusters; this can't be undone.
pub async fn remove(data_dir: &Path) -> Result<(), Error> {
    let layout = layout::Layout::of(data_dir)?;
    let lock = layout.lock().await?;
    leftovers::clear(&layout).await?;
    layout.remove()?;
    drop(lock);
    Ok(())
}
