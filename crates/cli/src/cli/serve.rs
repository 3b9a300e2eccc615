//! `postrider serve`: run until stopped, then shut down gracefully.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use postrider_web::text::plural;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{ConfigOptions, Output};
use crate::{
    alerts,
    config::{Config, Effective},
    database::Database,
    exit::{Exit, Failure},
    http::{self, Metrics, Readiness},
    logging,
    operate::Operate,
    roles::{Roles, Tasks},
    services::{Apis, Start},
};

/// How often histograms are compacted.
const METRICS_UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Options of `serve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port to listen on [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Roles of this process.
    #[arg(long, value_name = "ROLE,…", default_value_t)]
    roles: Roles,
    /// Stop when standard input ends, so that a parent process never leaves this one behind.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
    #[command(flatten)]
    config: ConfigOptions,
}

pub(super) async fn run(args: Args, output: &Output) -> Result<(), Failure> {
    let listen = ("--listen", "server.listen", args.listen.as_deref());
    let effective = args.config.load(&[listen])?;
    logging::start(&effective.config.log);
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    if args.until_stdin_ends {
        stop_with_stdin(stop.clone());
    }
    let running = tokio::select! {
        started = Running::start(effective, args.roles, stop.clone()) => started?,
        // Stopped while starting: dropping what was started also stops the embedded server.
        () = stop.cancelled() => return Ok(()),
    };
    output.say(&format!("Postrider listens on http://{}", running.address));
    running.until_stopped().await
}

/// A running server.
pub struct Running {
    /// The address that it listens on.
    pub address: SocketAddr,
    database: Database,
    readiness: Arc<Readiness>,
    server: JoinHandle<bool>,
    tasks: Tasks,
    upkeep: JoinHandle<()>,
    stop: CancellationToken,
}

impl Running {
    /// Starts everything for these roles; ready when it returns.
    pub async fn start(
        effective: Effective,
        roles: Roles,
        stop: CancellationToken,
    ) -> Result<Self, Failure> {
        let config = &effective.config;
        // Bind first: it fails fast, before a database is started for nothing.
        let listener = listen(config.server.listen).await?;
        let address = listener.local_addr().map_err(|e| {
            Failure::caused(Exit::Failed, "the listening address can't be read", &e)
        })?;
        let metrics = Metrics::install()?;
        let store = config
            .store
            .open(&config.data_dir().join("store"))
            .map_err(|e| Failure::caused(Exit::Config, "the store can't be used", &e))?;
        let database = Database::open(config).await?;
        if let Err(failure) = prepare_schema(config, &database).await {
            database.close().await;
            return Err(failure);
        }
        let readiness = Arc::new(Readiness::new(roles.clone()));
        let apis = Arc::new(Apis::start(&Start {
            pool: database.pool(),
            store: &store,
            config,
            stop: &stop,
        })?);
        let alerts = alerts::State::default();
        let state = http::State::from(http::Shared {
            pool: database.pool().clone(),
            wallet: database.wallet().cloned(),
            readiness: readiness.clone(),
            metrics: metrics.clone(),
            apis: Arc::clone(&apis),
            operate: Operate::new(database.pool().clone(), database.wallet().cloned(), apis)
                .map_err(|e| {
                    Failure::caused(Exit::Failed, "the operations API can't be started", &e)
                })?,
            alerts: alerts.clone(),
            config: effective.clone(),
        });
        let router = http::router(state, config, &roles)?;
        let server = tokio::spawn(http::serve(
            listener,
            router,
            config.server.drain_timeout,
            stop.clone(),
        ));
        let upkeep = tokio::spawn(async move {
            let mut tick = tokio::time::interval(METRICS_UPKEEP_INTERVAL);
            loop {
                tick.tick().await;
                metrics.upkeep();
            }
        });
        let tasks = Tasks::start(
            config,
            &roles,
            &database,
            store,
            alerts,
            &readiness,
            stop.clone(),
        )
        .await?;
        tracing::info!(%address, %roles, "ready");
        Ok(Self {
            address,
            database,
            readiness,
            server,
            tasks,
            upkeep,
            stop,
        })
    }

    /// Waits for the stop, then shuts everything down gracefully.
    pub async fn until_stopped(self) -> Result<(), Failure> {
        self.stop.cancelled().await;
        tracing::info!("stopping");
        self.readiness.stopping();
        let (server, ()) = tokio::join!(self.server, self.tasks.ended());
        self.upkeep.abort();
        self.database.close().await;
        tracing::info!("stopped");
        server
            .map(|_| ())
            .map_err(|e| Failure::caused(Exit::Failed, "the HTTP server failed", &e))
    }
}

async fn prepare_schema(config: &Config, database: &Database) -> Result<(), Failure> {
    if config.database.migrate {
        let applied = database.migrate().await?.pending.len();
        if applied == 0 {
            tracing::info!("database schema is up to date");
        } else {
            let migrations = plural(i64::try_from(applied).unwrap_or(i64::MAX), "migration");
            tracing::info!("applied {migrations}; database schema is up to date");
        }
        return Ok(());
    }
    let pending = database.plan().await?.pending;
    if let Some(first) = pending.first() {
        let message = format!(
            "{} pending, the first is {}/{}; run `postrider migrate`, or set database.migrate = true",
            plural(
                i64::try_from(pending.len()).unwrap_or(i64::MAX),
                "migration"
            ),
            first.schema,
            first.file()
        );
        return Err(Failure::new(Exit::Schema, message));
    }
    Ok(())
}

pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|e| {
        let advice = match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another program uses this port; choose another with --listen"
            }
            std::io::ErrorKind::PermissionDenied => {
                "ports below 1024 need privileges that this user lacks"
            }
            _ => "choose an address of this machine with --listen",
        };
        Failure::new(
            Exit::Failed,
            format!("can't listen on {address}: {e}; {advice}"),
        )
    })
}

/// Stops when standard input ends. In a thread of its own, since the read can't be cancelled.
fn stop_with_stdin(stop: CancellationToken) {
    std::thread::spawn(move || {
        // However the read ends, the parent is gone.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.cancel();
    });
}

/// SIGTERM and SIGINT stop gracefully; a second one exits at once (the embedded server still shuts down cleanly).
pub(super) fn stop_on_signal(stop: CancellationToken) -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |e| Failure::caused(Exit::Failed, "can't listen for signals", &e);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::spawn(async move {
        let mut asked = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if asked {
                std::process::exit(130);
            }
            asked = true;
            stop.cancel();
        }
    });
    Ok(())
}
