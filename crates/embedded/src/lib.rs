//! A private PostgreSQL server that lives and dies with the program.
//!
//! The promise: [`Postgres::start`] on a data directory gives a durable database, whatever
//! happened there before (nothing yet, a clean stop, an interrupted first start, a kill -9 of the
//! program, of the server or of both), or an error whose text says what to do. While the program
//! lives, a server that dies is brought back; when the program ends, however it ends, the server
//! ends too.
//!
//! Gauge order: `layout` (where things are), `binaries` (which PostgreSQL), `account` (as whom it
//! runs), `cluster` (its first birth), `leftovers` (what a crash left behind), `server` (one life
//! of the server process), `keeper` (all its lives).

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

/// The database that the program finds in its private cluster.
pub const DATABASE: &str = "postrider";
/// The role that owns the private cluster.
pub const ROLE: &str = "postrider";

/// What to start and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program's data directory; the cluster lives in its `postgres` folder.
    pub data_dir: PathBuf,
    /// Where `postgres` and `initdb` are; looked for when absent.
    pub bin_dir: Option<PathBuf>,
    /// Server settings that override the built-in ones, as in `postgresql.conf`.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// The usual: binaries found by themselves, built-in settings.
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

/// What the server is doing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Accepting connections; `pid` is the server's main process.
    Running {
        /// The main process.
        pid: u32,
    },
    /// It died and is being brought back; connections fail meanwhile.
    Restarting,
    /// It was stopped on purpose and will not come back.
    Stopped,
}

/// A running private server. Dropping it asks the server to stop; [`Postgres::stop`] also waits.
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
    /// Everything happens on a thread of its own, with its own small runtime: the server's life is
    /// tied to that thread by the kernel, and must not hang on whichever runtime called this.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let (stop, stop_asked) = oneshot::channel();
        let (ready, started) = oneshot::channel();
        let (done_sender, done) = oneshot::channel();
        let (state_sender, state) = watch::channel(State::Restarting);
        let restarts = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&restarts);
        std::thread::Builder::new()
            .name("postgres-keeper".to_owned())
            .spawn(move || {
                supervisor::run(
                    options,
                    ready,
                    stop_asked,
                    done_sender,
                    state_sender,
                    counter,
                );
            })
            .map_err(|source| Error::Thread { source })?;
        let started = started.await.map_err(|_| Error::KeeperGone)??;
        Ok(Self {
            socket_dir: started.socket_dir,
            version: started.version,
            state,
            restarts,
            stop,
            done,
        })
    }

    /// How the program connects: unix socket, database and role [`DATABASE`], [`ROLE`].
    pub fn connect_options(&self) -> PgConnectOptions {
        server::connect_options(&self.socket_dir).database(DATABASE)
    }

    /// The same address as a URL, for people and for `psql`.
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

    /// How often the server died and was brought back.
    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// The server's state, to read or to wait on.
    pub fn state(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Stops the server cleanly (open transactions are rolled back) and waits until it is gone.
    pub async fn stop(self) -> Result<(), Error> {
        // A closed channel means that the keeper has ended already; `done` knows how.
        let _ = self.stop.send(());
        self.done.await.map_err(|_| Error::KeeperGone)?
    }
}

/// Deletes the private cluster of a data directory that no program uses, ending a server that a
/// crashed program may have left. For throw-away clusters; there is no way back.
pub async fn remove(data_dir: &Path) -> Result<(), Error> {
    let layout = layout::Layout::of(data_dir)?;
    let lock = layout.lock().await?;
    leftovers::clear(&layout).await?;
    layout.remove()?;
    drop(lock);
    Ok(())
}
