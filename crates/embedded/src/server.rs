//! The server process, from launch to end.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};
use tokio::process::{Child, Command};

use crate::account::Account;
use crate::binaries::{Installation, on_path};
use crate::error::Error;
use crate::layout::Layout;
use crate::log::Log;
use crate::{DATABASE, ROLE};

/// How long a server may neither accept connections nor report that it is starting.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How often to try to connect while it starts.
const POLL_INTERVAL: Duration = Duration::from_millis(15);
/// "The database system is starting up" (or still recovering from a crash).
const CANNOT_CONNECT_NOW: &str = "57P03";
/// The program's database doesn't exist yet.
const NO_SUCH_DATABASE: &str = "3D000";

/// Shutdown signals, gentlest first, and the timeout of each.
const SHUTDOWN_STEPS: &[(Signal, Duration)] = &[
    (Signal::SIGINT, Duration::from_secs(60)),
    (Signal::SIGQUIT, Duration::from_secs(10)),
    (Signal::SIGKILL, Duration::from_secs(10)),
];

/// A server process that this program started.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: Log,
}

impl Server {
    /// Starts the process; it is not ready yet.
    pub(crate) fn launch(
        layout: &Layout,
        installation: &Installation,
        account: &Account,
        settings: &[(String, String)],
    ) -> Result<Self, Error> {
        let (log, output) = Log::open(&layout.log)?;
        let errors = output
            .try_clone()
            .map_err(Error::io("open the log", &layout.log))?;
        let program = installation.program("postgres");
        let mut command = with_pdeathsig(&program, "INT");
        command.arg("-D").arg(&layout.cluster);
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        // Its working directory is the cluster from the start, which is how a later run finds it.
        account.apply(&mut command, &layout.cluster);
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C goes to the whole process group, but the program stops the server after it has
            // drained its own work.
            .process_group(0)
            .spawn()
            .map_err(Error::io("run", &program))?;
        Ok(Self { child, log })
    }

    /// The main process, while it lives.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) fn trim_log(&mut self) {
        self.log.trim();
    }

    /// Resolves when the process has ended.
    pub(crate) async fn ended(&mut self) -> Result<ExitStatus, Error> {
        self.child
            .wait()
            .await
            .map_err(Error::io("wait for", self.log.path()))
    }

    /// The last lines of its log.
    pub(crate) fn log_tail(&self) -> String {
        self.log.tail()
    }

    /// Waits until it accepts connections to the program's database, making that if need be.
    /// A server that says it is starting gets all the time it needs: after a crash that can be long.
    pub(crate) async fn ready(&mut self, socket_dir: &Path) -> Result<(), Error> {
        let options = connect_options(socket_dir);
        let mut since = Instant::now();
        loop {
            if let Some(status) = self
                .child
                .try_wait()
                .map_err(Error::io("wait for", self.log.path()))?
            {
                return Err(Error::Exited {
                    status,
                    log: self.log.path().to_owned(),
                    tail: self.log.tail(),
                });
            }
            let last = match probe(&options).await {
                Probe::Open => return Ok(()),
                Probe::NoDatabase => return create_database(&options).await,
                Probe::Starting => {
                    since = Instant::now();
                    String::new()
                }
                Probe::Closed(last) => last,
            };
            if since.elapsed() > READY_TIMEOUT {
                return Err(Error::NotReady {
                    waited: READY_TIMEOUT,
                    last,
                    log: self.log.path().to_owned(),
                    tail: self.log.tail(),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Shuts the process down, with increasing force, and waits until it has ended.
    pub(crate) async fn shut_down(&mut self) -> Result<(), Error> {
        for (signal, timeout) in SHUTDOWN_STEPS {
            let Some(pid) = self.child.id() else {
                return Ok(());
            };
            // The pid is still ours: the child has not been reaped.
            let _ = kill(Pid::from_raw(pid.cast_signed()), *signal);
            match tokio::time::timeout(*timeout, self.ended()).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    tracing::warn!(%signal, "PostgreSQL does not stop; sending the next signal");
                }
            }
        }
        Ok(())
    }
}

enum Probe {
    Open,
    NoDatabase,
    Starting,
    Closed(String),
}

async fn probe(options: &PgConnectOptions) -> Probe {
    let options = options.clone().database(DATABASE);
    let attempt = PgConnection::connect_with(&options);
    match tokio::time::timeout(Duration::from_secs(5), attempt).await {
        Ok(Ok(connection)) => {
            // Only the successful connection matters.
            let _ = connection.close().await;
            Probe::Open
        }
        Ok(Err(sqlx::Error::Database(error))) => match error.code().as_deref() {
            Some(NO_SUCH_DATABASE) => Probe::NoDatabase,
            Some(CANNOT_CONNECT_NOW) => Probe::Starting,
            _ => Probe::Closed(error.to_string()),
        },
        Ok(Err(error)) => Probe::Closed(error.to_string()),
        Err(_) => Probe::Closed("no response".to_owned()),
    }
}

async fn create_database(options: &PgConnectOptions) -> Result<(), Error> {
    let make = async {
        let options = options.clone().database("postgres");
        let mut connection = PgConnection::connect_with(&options).await?;
        sqlx::raw_sql("CREATE DATABASE postrider")
            .execute(&mut connection)
            .await?;
        connection.close().await
    };
    make.await.map_err(|source| Error::Database { source })
}

/// Connection options for the socket in this directory, independent of the environment.
pub(crate) fn connect_options(socket_dir: &Path) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(socket_dir)
        .port(5432)
        .username(ROLE)
        .ssl_mode(PgSslMode::Disable)
        .disable_statement_logging()
}

/// A command whose process the kernel signals when the calling thread ends, which is why the
/// supervisor's thread lives as long as the program. Without `setpriv` (outside Linux) the next
/// start cleans up.
pub(crate) fn with_pdeathsig(program: &Path, signal: &str) -> Command {
    match on_path("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", signal]).arg(program);
            command
        }
        None => Command::new(program),
    }
}
