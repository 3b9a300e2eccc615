//! Starts the server, restarts it when it dies, stops it on request.
//!
//! Runs on a thread of its own and holds the directory's lock throughout.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::account::Account;
use crate::binaries::Installation;
use crate::error::Error;
use crate::layout::Layout;
use crate::server::Server;
use crate::{Options, State, binaries, cluster, leftovers, settings};

const MIN_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// After a run this long, the backoff starts over.
const STABLE_AFTER: Duration = Duration::from_secs(60);
const TRIM_INTERVAL: Duration = Duration::from_secs(30);
/// A start can fail while an earlier server is still ending; that is rare.
const MAX_ATTEMPTS: u32 = 5;

/// What the caller needs to know about a started server.
pub(crate) struct Started {
    pub(crate) socket_dir: PathBuf,
    pub(crate) version: String,
}

struct Supervisor {
    layout: Layout,
    installation: Installation,
    account: Account,
    settings: Vec<(String, String)>,
    lock: File,
    server: Option<Server>,
    state: watch::Sender<State>,
    restarts: Arc<AtomicU64>,
}

/// Body of the supervisor's thread.
pub(crate) fn run(
    options: Options,
    ready: oneshot::Sender<Result<Started, Error>>,
    stop: oneshot::Receiver<()>,
    done: oneshot::Sender<Result<(), Error>>,
    state: watch::Sender<State>,
    restarts: Arc<AtomicU64>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(source) => {
            // A closed channel means that the caller no longer wants the server; same below.
            let _ = ready.send(Err(Error::Thread { source }));
            return;
        }
    };
    runtime.block_on(async {
        match Supervisor::prepare(options, state, restarts).await {
            Ok(supervisor) => {
                let ended = supervisor.run(ready, stop).await;
                let _ = done.send(ended);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    });
}

impl Supervisor {
    /// Everything before the launch; errors here need an operator.
    async fn prepare(
        options: Options,
        state: watch::Sender<State>,
        restarts: Arc<AtomicU64>,
    ) -> Result<Self, Error> {
        Layout::create_data_dir(&options.data_dir)?;
        let layout = Layout::of(&options.data_dir)?;
        let lock = layout.lock().await?;
        let account = Account::choose(&layout.cluster)?;
        layout.prepare(&account)?;
        let installation = binaries::choose(options.bin_dir.as_deref(), &layout).await?;
        let throwaway = settings::is_throwaway(&options.settings);
        cluster::ensure(&layout, &installation, &account, throwaway).await?;
        Ok(Self {
            settings: settings::all(&layout.socket_dir, &options.settings),
            layout,
            installation,
            account,
            lock,
            server: None,
            state,
            restarts,
        })
    }

    /// From the first launch to the end.
    async fn run(
        mut self,
        ready: oneshot::Sender<Result<Started, Error>>,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<(), Error> {
        let first = tokio::select! {
            first = self.start_server() => first,
            _ = &mut stop => return self.end().await,
        };
        if let Err(error) = first {
            let ended = self.end().await;
            let _ = ready.send(Err(error));
            return ended;
        }
        let started = Started {
            socket_dir: self.layout.socket_dir.clone(),
            version: self.installation.version.clone(),
        };
        if ready.send(Ok(started)).is_err() {
            return self.end().await;
        }
        // Supervision never ends by itself; a dropped handle stops it, too.
        tokio::select! {
            () = self.supervise() => {}
            _ = &mut stop => {}
        }
        self.end().await
    }

    /// Restarts the server whenever it dies.
    async fn supervise(&mut self) {
        let mut pause = MIN_BACKOFF;
        loop {
            let started = Instant::now();
            self.watch().await;
            self.state.send_replace(State::Restarting);
            if started.elapsed() > STABLE_AFTER {
                pause = MIN_BACKOFF;
            }
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_BACKOFF);
                match self.start_server().await {
                    Ok(()) => break,
                    Err(error) => {
                        tracing::error!(%error, retry_in = ?pause, "PostgreSQL could not be restarted; retrying");
                    }
                }
            }
            let restarts = self.restarts.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::info!(restarts, "PostgreSQL restarted");
        }
    }

    /// Resolves when the server has died.
    async fn watch(&mut self) {
        let Some(server) = &mut self.server else {
            return;
        };
        loop {
            tokio::select! {
                status = server.ended() => {
                    let status = status.map_or_else(|error| error.to_string(), |s| s.to_string());
                    let log = server.log_tail();
                    tracing::error!(%status, %log, "PostgreSQL has died; restarting it");
                    return;
                }
                () = tokio::time::sleep(TRIM_INTERVAL) => server.trim_log(),
            }
        }
    }

    /// Cleans up, launches and waits for readiness. The server is stored as soon as it exists, so that
    /// cancellation here can't lose it.
    async fn start_server(&mut self) -> Result<(), Error> {
        let mut attempt = 1;
        loop {
            leftovers::clear(&self.layout).await?;
            let server = self.server.insert(Server::launch(
                &self.layout,
                &self.installation,
                &self.account,
                &self.settings,
            )?);
            match server.ready(&self.layout.socket_dir).await {
                Ok(()) => {
                    if let Some(pid) = server.pid() {
                        self.state.send_replace(State::Running { pid });
                    }
                    return Ok(());
                }
                // An earlier server was still starting or ending, unnoticed by the cleanup.
                Err(Error::Exited { .. })
                    if attempt < MAX_ATTEMPTS && leftovers::any(&self.layout) =>
                {
                    attempt += 1;
                }
                Err(error) => {
                    server.shut_down().await?;
                    return Err(error);
                }
            }
        }
    }

    async fn end(mut self) -> Result<(), Error> {
        let ended = match &mut self.server {
            Some(server) => server.shut_down().await,
            None => Ok(()),
        };
        drop(self.lock);
        self.state.send_replace(State::Stopped);
        ended
    }
}
