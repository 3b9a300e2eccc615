//! All lives of the server: starts it, brings it back when it dies, ends it on request.
//!
//! Runs on a thread of its own from the first look at the data directory to the server's end, and
//! holds the directory's lock for as long.

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

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A life this long was a good one: the next death is met without a pause again.
const GOOD_LIFE: Duration = Duration::from_secs(60);
const TRIM_EVERY: Duration = Duration::from_secs(30);
/// Starting beside the last moments of an earlier server can fail; it does not fail often.
const ATTEMPTS: u32 = 5;

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

/// The body of the keeper's thread.
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
            // Nobody listening means that nobody wants the server any more; so below.
            let _ = ready.send(Err(Error::Thread { source }));
            return;
        }
    };
    runtime.block_on(async {
        match Supervisor::prepare(options, state, restarts).await {
            Ok(keeper) => {
                let ended = keeper.live(ready, stop).await;
                let _ = done.send(ended);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    });
}

impl Supervisor {
    /// Everything before the launch; what it finds wrong is for a person to put right.
    async fn prepare(
        options: Options,
        state: watch::Sender<State>,
        restarts: Arc<AtomicU64>,
    ) -> Result<Self, Error> {
        Layout::make_data_dir(&options.data_dir)?;
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
    async fn live(
        mut self,
        ready: oneshot::Sender<Result<Started, Error>>,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<(), Error> {
        let first = tokio::select! {
            first = self.bring_up() => first,
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
        // Watching and reviving never end by themselves; a dropped handle is a wish to stop, too.
        tokio::select! {
            () = self.keep() => {}
            _ = &mut stop => {}
        }
        self.end().await
    }

    /// Watches the server and brings it back whenever it dies.
    async fn keep(&mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let born = Instant::now();
            self.watch().await;
            self.state.send_replace(State::Restarting);
            if born.elapsed() > GOOD_LIFE {
                pause = FIRST_PAUSE;
            }
            loop {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                match self.bring_up().await {
                    Ok(()) => break,
                    Err(error) => {
                        tracing::error!(%error, retry_in = ?pause, "PostgreSQL does not come back");
                    }
                }
            }
            let restarts = self.restarts.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::info!(restarts, "PostgreSQL is back");
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
                    let log = server.last_words();
                    tracing::error!(%status, %log, "PostgreSQL has died; bringing it back");
                    return;
                }
                () = tokio::time::sleep(TRIM_EVERY) => server.trim_log(),
            }
        }
    }

    /// Clears what was left, launches and waits for readiness. The server is recorded as soon as
    /// it exists, so that being interrupted here cannot lose it.
    async fn bring_up(&mut self) -> Result<(), Error> {
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
                // Somebody was still there, unseen before: an earlier server in its first or
                // last moments.
                Err(Error::Exited { .. }) if attempt < ATTEMPTS && leftovers::any(&self.layout) => {
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
